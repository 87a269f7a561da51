//! Joins new bytes with an old file: appends them, inserts them before a line, or replaces the
//! file.
//!
//! Appending is exact: no byte is added in between. Inserting works on lines: inserted text never
//! shares a line with old text, so a line end is added between the two if neither side has one.
//! Inserted text takes the line ends of the file, if these are all LF or all CR LF.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use dormouse_proto::file::{FileError, WriteMode};

use super::file_request::FileRequest;

const CHUNK_BYTES: usize = 64 << 10;

/// How an old file and new bytes are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    /// The number of bytes of the old file before the new bytes; `None` drops the old file.
    at: Option<u64>,
    /// Whether a line end is added before the new bytes.
    has_line_end_before: bool,
    /// Whether a line end is added after the new bytes.
    has_line_end_after: bool,
    /// The line ends of the old file, which inserted text takes; `None` if the new bytes stay as
    /// they are.
    line_ending: Option<LineEnding>,
}

/// How the lines of a text end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnding {
    Lf,
    CrLf,
}

impl LineEnding {
    /// The line ending of a text with so many LFs, of which so many follow a CR; `None` if there
    /// are both or none.
    fn of_counts(line_feeds: u64, after_cr: u64) -> Option<Self> {
        match (line_feeds, after_cr) {
            (0, _) => None,
            (_, 0) => Some(Self::Lf),
            (all, crlf) if all == crlf => Some(Self::CrLf),
            _ => None,
        }
    }

    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::CrLf => b"\r\n",
        }
    }

    /// The text with these line ends. Bytes with other line ends than one kind, or with NULs, stay
    /// as they are.
    fn convert(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        let after_cr = memchr::memmem::find_iter(bytes, b"\r\n").count() as u64;
        let line_feeds = memchr::memchr_iter(b'\n', bytes).count() as u64;
        match Self::of_counts(line_feeds, after_cr) {
            Some(own) if own != self && memchr::memchr(0, bytes).is_none() => {
                let mut converted = Vec::with_capacity(bytes.len() + bytes.len() / 8);
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    let text = line.strip_suffix(own.bytes());
                    converted.extend_from_slice(text.unwrap_or(line));
                    converted.extend_from_slice(text.map_or(b"", |_| self.bytes()));
                }
                Cow::Owned(converted)
            }
            _ => Cow::Borrowed(bytes),
        }
    }
}

/// A line that an old file does not have.
#[derive(Debug, PartialEq, Eq)]
struct NoSuchLine {
    lines: u64,
}

impl Splice {
    /// Finds the position. Costs one pass over the old file in insert mode, nothing in other modes.
    ///
    /// # Errors
    /// `InvalidRange` for a line that is neither in the file nor the one after its last.
    pub(super) fn find(
        mode: WriteMode,
        old: Option<&mut File>,
        bytes: &[u8],
        request: &FileRequest<'_>,
    ) -> Result<Self, FileError> {
        match (mode, old) {
            (WriteMode::Write, _) => Ok(Self::verbatim(None)),
            (WriteMode::Append, _) => Ok(Self::verbatim(Some(u64::MAX))),
            (WriteMode::Insert { at_line }, Some(old)) => {
                Self::before_line(old, at_line, bytes, request)
            }
            (WriteMode::Insert { at_line }, None) => {
                Self::before_line(&mut io::empty(), at_line, bytes, request)
            }
        }
    }

    fn verbatim(at: Option<u64>) -> Self {
        Self {
            at,
            has_line_end_before: false,
            has_line_end_after: false,
            line_ending: None,
        }
    }

    fn before_line(
        old: &mut impl Read,
        at_line: u64,
        bytes: &[u8],
        request: &FileRequest<'_>,
    ) -> Result<Self, FileError> {
        let lines = Lines::count(old, at_line).map_err(|error| request.io("read", &error))?;
        lines
            .splice(at_line, bytes)
            .map_err(|NoSuchLine { lines }| request.no_such_line(at_line, lines))
    }

    /// Writes the joined file to `out`.
    pub(super) fn compose<R: Read + Seek>(
        self,
        old: Option<&mut R>,
        bytes: &[u8],
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut old_and_offset = old.and_then(|old| Some((old, self.at?)));
        if let Some((old, at)) = &mut old_and_offset {
            old.seek(SeekFrom::Start(0))?;
            io::copy(&mut old.by_ref().take(*at), out)?;
        }
        let line_end = self.line_ending.unwrap_or(LineEnding::Lf).bytes();
        let bytes = match self.line_ending {
            Some(ending) => ending.convert(bytes),
            None => Cow::Borrowed(bytes),
        };
        out.write_all(if self.has_line_end_before {
            line_end
        } else {
            b""
        })?;
        out.write_all(&bytes)?;
        out.write_all(if self.has_line_end_after {
            line_end
        } else {
            b""
        })?;
        if let Some((old, _)) = old_and_offset {
            io::copy(old, out)?;
        }
        Ok(())
    }
}

/// The result of one pass over the lines of a file. Only LF ends a line, and a final LF does not
/// begin another one.
#[derive(Debug, Default)]
struct Lines {
    line_feeds: u64,
    /// LFs that follow a CR.
    line_feeds_after_cr: u64,
    size: u64,
    last_byte: Option<u8>,
    /// The offset of the requested line, if the file has enough line feeds before it.
    start: Option<u64>,
}

impl Lines {
    fn count(old: &mut impl Read, at_line: u64) -> io::Result<Self> {
        let mut lines = Self {
            start: (at_line == 1).then_some(0),
            ..Self::default()
        };
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match old.read(&mut chunk) {
                Ok(0) => return Ok(lines),
                Ok(read) => lines.add_chunk(&chunk[..read], at_line),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn add_chunk(&mut self, chunk: &[u8], at_line: u64) {
        let found = memchr::memchr_iter(b'\n', chunk).count() as u64;
        let line_feeds_before = at_line.saturating_sub(1);
        if line_feeds_before > self.line_feeds && line_feeds_before <= self.line_feeds + found {
            let skip = usize::try_from(line_feeds_before - self.line_feeds - 1)
                .expect("it is less than the chunk's length");
            self.start = memchr::memchr_iter(b'\n', chunk)
                .nth(skip)
                .map(|at| self.size + at as u64 + 1);
        }
        let begins_after_cr = self.last_byte == Some(b'\r') && chunk.first() == Some(&b'\n');
        let after_cr = memchr::memmem::find_iter(chunk, b"\r\n").count() as u64;
        self.line_feeds_after_cr += after_cr + u64::from(begins_after_cr);
        self.line_feeds += found;
        self.size += chunk.len() as u64;
        self.last_byte = chunk.last().copied();
    }

    fn splice(&self, at_line: u64, bytes: &[u8]) -> Result<Splice, NoSuchLine> {
        let ends_without_lf = self.last_byte.is_some_and(|last| last != b'\n');
        let lines = self.line_feeds + u64::from(ends_without_lf);
        if at_line == 0 || at_line > lines + 1 {
            return Err(NoSuchLine { lines });
        }
        let at = self.start.unwrap_or(self.size);
        let has_bytes = !bytes.is_empty();
        let has_line_end_after = has_bytes && at < self.size && !bytes.ends_with(b"\n");
        Ok(Splice {
            at: Some(at),
            has_line_end_before: has_bytes && self.start.is_none(),
            has_line_end_after,
            line_ending: LineEnding::of_counts(self.line_feeds, self.line_feeds_after_cr),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn insert(old: &str, at_line: u64, new: &str) -> Result<String, u64> {
        let mut old = Cursor::new(old.as_bytes());
        let lines = Lines::count(&mut old, at_line).expect("memory can be read");
        let splice = lines
            .splice(at_line, new.as_bytes())
            .map_err(|error| error.lines)?;
        let mut out = Vec::new();
        splice
            .compose(Some(&mut old), new.as_bytes(), &mut out)
            .expect("memory can be written");
        Ok(String::from_utf8(out).expect("text stays text"))
    }

    #[test]
    fn a_read_error_is_returned_and_an_interruption_is_retried() {
        struct Fails(Vec<io::ErrorKind>);
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                self.0.pop().map_or(Ok(0), |kind| Err(kind.into()))
            }
        }
        use io::ErrorKind::{Interrupted, PermissionDenied};
        assert_eq!(
            Lines::count(&mut Fails(vec![Interrupted]), 1).unwrap().size,
            0
        );
        let failed = Lines::count(&mut Fails(vec![PermissionDenied, Interrupted]), 1);
        assert_eq!(
            failed.err().map(|error| error.kind()),
            Some(PermissionDenied)
        );
    }

    #[test]
    fn inserted_text_precedes_its_line_and_shares_no_line() {
        let cases = [
            ("", 1, "x", Ok("x")),
            ("", 0, "x", Err(0)),
            ("", 2, "x", Err(0)),
            ("a\nb\n", 0, "x\n", Err(2)),
            ("a\nb\n", 1, "x\n", Ok("x\na\nb\n")),
            ("a\nb\n", 2, "x\n", Ok("a\nx\nb\n")),
            ("a\nb\n", 2, "x", Ok("a\nx\nb\n")),
            ("a\nb\n", 3, "x", Ok("a\nb\nx")),
            ("a\nb\n", 4, "x", Err(2)),
            ("a\nb", 2, "x\ny\n", Ok("a\nx\ny\nb")),
            ("a\nb", 3, "x", Ok("a\nb\nx")),
            ("a\nb", 3, "x\n", Ok("a\nb\nx\n")),
            ("a\nb", 4, "x", Err(2)),
            ("a\r\nb\r\n", 2, "x\r\n", Ok("a\r\nx\r\nb\r\n")),
            ("a\r\nb\r\n", 2, "x\ny", Ok("a\r\nx\r\ny\r\nb\r\n")),
            ("a\r\nb", 3, "x\n", Ok("a\r\nb\r\nx\r\n")),
            ("a\r\nb\r\n", 2, "x\ny\r\n", Ok("a\r\nx\ny\r\nb\r\n")),
            ("a\r\nb\r\n", 1, "\0\n", Ok("\0\na\r\nb\r\n")),
            ("a\nb\n", 2, "x\r\ny\r\n", Ok("a\nx\ny\nb\n")),
            ("a\nb\r\n", 2, "x\r\n", Ok("a\nx\r\nb\r\n")),
            ("a\nb\r\n", 2, "x\n", Ok("a\nx\nb\r\n")),
            ("a", 1, "x\r\n", Ok("x\r\na")),
            ("\n\n", 2, "x\n", Ok("\nx\n\n")),
            ("a\nb", 1, "", Ok("a\nb")),
            ("a\nb", 3, "", Ok("a\nb")),
            ("a", u64::MAX, "x", Err(1)),
        ];
        for (old, at_line, new, expected) in cases {
            assert_eq!(
                insert(old, at_line, new),
                expected.map(str::to_owned),
                "{old:?} at {at_line} {new:?}"
            );
        }
    }

    #[test]
    fn lines_are_found_across_chunks() {
        let old: String = (1..=30_000).map(|n| format!("line {n}\n")).collect();
        assert!(old.len() > 3 * CHUNK_BYTES);
        for at_line in [1, 2, 9_999, 15_000, 29_999, 30_000, 30_001] {
            let rows: Vec<_> = old.lines().collect();
            let (before, after) = rows.split_at(usize::try_from(at_line - 1).expect("small"));
            let expected: Vec<_> = before
                .iter()
                .chain([&"new"])
                .chain(after)
                .copied()
                .collect();
            assert_eq!(
                insert(&old, at_line, "new\n").expect("in range"),
                expected.join("\n") + "\n"
            );
        }
    }
}
