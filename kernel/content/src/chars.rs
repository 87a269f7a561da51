//! Counting and skipping characters in UTF-8, many bytes at a time.

/// Bytes that are counted together. The count fits into a byte, which lets the compiler vectorise
/// the loop.
const LANE: usize = 64;

/// Whether this is the first byte of a character.
fn starts_char(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

fn count_lane(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .map(|byte| u8::from(starts_char(*byte)))
        .sum::<u8>()
        .into()
}

/// Number of characters that start in `bytes`.
pub(super) fn count(bytes: &[u8]) -> usize {
    bytes.chunks(LANE).map(count_lane).sum()
}

/// The start of the character that is `chars` characters after the one at byte `from`; the length
/// of `bytes` if there are not that many.
pub(super) fn skip(bytes: &[u8], from: usize, chars: usize) -> usize {
    let mut position = from;
    let mut remaining = chars;
    while let Some(lane) = bytes.get(position..position + LANE) {
        let counted = count_lane(lane);
        if counted > remaining {
            break;
        }
        remaining -= counted;
        position += LANE;
    }
    // `remaining` characters still have to be skipped before the target.
    let starts = bytes[position..]
        .iter()
        .enumerate()
        .filter(|(_, byte)| starts_char(**byte));
    starts
        .map(|(offset, _)| position + offset)
        .nth(remaining)
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_agrees_with_char_indices() {
        for piece in ["a", "é", "一", "😀", "a😀é\n"] {
            let text = piece.repeat(100);
            let starts: Vec<_> = text
                .char_indices()
                .map(|(at, _)| at)
                .chain([text.len()])
                .collect();
            assert_eq!(count(text.as_bytes()), starts.len() - 1);
            for from in [0, 1, 7, 63, 64, 65] {
                for chars in [0, 1, 2, 31, 32, 63, 64, 65, 99, 1000] {
                    let expected = starts.get(from + chars).copied().unwrap_or(text.len());
                    assert_eq!(
                        skip(text.as_bytes(), starts[from], chars),
                        expected,
                        "{piece} {from} {chars}"
                    );
                }
            }
        }
    }
}
