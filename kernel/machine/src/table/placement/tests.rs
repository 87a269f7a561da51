//! Tests where outputs, messages and inputs are placed.

use super::*;

fn placed(
    output: ToolOutput,
    source: &str,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Placement {
    Placer::unlimited(settings, now_ms)
        .output(output, source)
        .placement
}

const ID: FdId = FdId::Fd(1);

fn settings(threshold: u64) -> DescriptorSettings {
    DescriptorSettings {
        max_direct_output_chars: threshold,
        max_input_chars: threshold,
        page_chars: 10,
        ..DescriptorSettings::default()
    }
}

fn is_opened(placement: &Placement) -> bool {
    matches!(placement, Placement::Descriptor(_))
}

#[test]
fn tokens_are_a_second_threshold() {
    let settings = DescriptorSettings {
        max_direct_output_tokens: Some(5),
        ..settings(30)
    };
    let cases = [
        ("a".repeat(20), None),
        ("a".repeat(21), Some("exceeds 5 tokens, as estimated. Use")),
        ("a".repeat(31), Some("exceeds 30 characters. Use")),
        ("語".repeat(6), None),
        ("語".repeat(7), Some("exceeds 5 tokens, as estimated. Use")),
    ];
    for (text, message) in cases {
        let placement = placed(ToolOutput::ok(text.clone()), "tool:t", Some(&settings), 0);
        assert_eq!(is_opened(&placement), message.is_some(), "{text}");
        if let Placement::Descriptor(new) = placement {
            let answer = new.answer(&ID).text.to_string();
            assert!(answer.contains(message.unwrap()), "{answer}");
        }
    }
}

#[test]
fn only_text_longer_than_the_threshold_becomes_a_descriptor() {
    let cases: [(&[u8], bool); 6] = [
        (&[b'a'; 20], false),
        (&[b'a'; 21], true),
        ("é".repeat(20).leak().as_bytes(), false),
        ("é".repeat(21).leak().as_bytes(), true),
        (&[0xff; 15], false),
        (&[0xff; 16], true),
    ];
    for (bytes, expected) in cases {
        for is_error in [false, true] {
            let output = ToolOutput {
                is_error,
                ..ToolOutput::ok(bytes)
            };
            let placement = placed(output.clone(), "tool:t", Some(&settings(20)), 7);
            assert_eq!(is_opened(&placement), expected, "{bytes:?}");
            assert_eq!(placement.answer(&ID).is_error, is_error);
            assert!(
                !is_opened(&placed(output, "tool:t", None, 7)),
                "descriptors are off"
            );
        }
        if let Ok(text) = std::str::from_utf8(bytes) {
            let part = InputPart::text(text);
            assert_eq!(
                is_opened(&Placer::unlimited(Some(&settings(20)), 7).input(&part)),
                expected
            );
            let off = DescriptorSettings {
                page_user_input: false,
                ..settings(20)
            };
            assert!(!is_opened(&Placer::unlimited(Some(&off), 7).input(&part)));
        }
    }
}

#[test]
fn the_descriptor_holds_the_whole_output() {
    let output = ToolOutput::ok("line one\nline two\nline three\n");
    let Placement::Descriptor(new) = placed(output, "tool:a\"b", Some(&settings(20)), 7) else {
        panic!("29 characters are more than 20")
    };
    assert_eq!((new.entry.opened_ms, &*new.entry.source), (7, "tool:a\"b"));
    assert_eq!(
        &*new.answer(&ID).text,
        "<fd_result fd=\"fd:1\" source=\"tool:a&quot;b\" pages=\"4\" truncated=\"false\" \
             lines=\"1-1\" total_lines=\"3\" total_chars=\"29\">\n  <message>Output exceeds 20 \
             characters. Use read_fd to read more pages.</message>\n  <preview>line \
             one\n</preview>\n</fd_result>"
    );
    let part = InputPart::text("<b>\n".repeat(9));
    let Placement::Descriptor(new) = Placer::unlimited(Some(&settings(20)), 8).input(&part) else {
        panic!("36 characters are more than 20")
    };
    assert_eq!(&*new.entry.source, "user_input");
    let answer = new.answer(&FdId::Fd(2));
    assert!(
        answer
            .text
            .contains("Large user input has been stored in a file descriptor."),
        "{}",
        answer.text
    );
}

#[test]
fn the_preview_of_an_error_always_shows_both_ends() {
    let text = "building\nwarning: unused\nerror: no such file\n";
    let shown = |placement: &Placement| {
        let answer = placement.answer(&ID);
        let parts =
            ["building", "warning: unused", "no such file"].map(|part| answer.text.contains(part));
        (is_opened(placement), parts)
    };
    let output = |is_error, settings: &DescriptorSettings| {
        let output = ToolOutput {
            is_error,
            ..ToolOutput::ok(text)
        };
        shown(&placed(output, "tool:t", Some(settings), 0))
    };
    let exit = |status, settings: &DescriptorSettings| {
        shown(&Placer::unlimited(Some(settings), 0).exit(&Exit::new(status, text), "fork:2"))
    };
    let (head, ends) = ((true, [true, true, false]), (true, [true, false, true]));
    let settings = DescriptorSettings {
        page_chars: 40,
        ..settings(20)
    };
    let small = DescriptorSettings {
        max_direct_output_chars: 100,
        ..settings
    };
    assert_eq!(
        [output(false, &settings), output(true, &settings)],
        [head, ends]
    );
    assert_eq!(output(true, &small), (false, [true; 3]));
    assert_eq!(
        [
            exit(ExitStatus::Done, &settings),
            exit(ExitStatus::Refused, &settings)
        ],
        [head, ends]
    );
}

#[test]
fn produced_characters_are_counted_before_reformatting() {
    let json = format!("[{}]", "1,".repeat(20).trim_end_matches(','));
    let settings = DescriptorSettings {
        pretty_json: true,
        ..settings(20)
    };
    let placement = placed(ToolOutput::ok(json.clone()), "tool:t", Some(&settings), 0);
    assert!(is_opened(&placement) && placement.answer(&ID).text.contains("pretty=\"true\""));
    assert_eq!(placement.produced_chars(), json.len() as u64);
}

#[test]
fn small_binary_output_is_labelled_as_base64() {
    let output = ToolOutput::ok(vec![0_u8, 0xff]);
    let placement = placed(output, "tool:t", Some(&settings(20)), 0);
    let text = "Binary output of 2 bytes, as base64:\nAP8=";
    let produced_chars = text.len() as u64;
    assert_eq!(
        placement,
        Placement::Context {
            answer: Answer::shown(text),
            text: text.into(),
            produced_chars
        }
    );
}

#[test]
fn bytes_past_the_limit_are_dropped_and_counted() {
    let capped = |max_content_bytes| DescriptorSettings {
        max_content_bytes,
        ..settings(20)
    };
    let output = ToolOutput {
        cut_bytes: 5,
        ..ToolOutput::ok("é".repeat(26))
    };
    let placement = placed(output.clone(), "tool:t", Some(&capped(31)), 0);
    let Placement::Context { answer, .. } = placement else {
        panic!("15 characters are left")
    };
    let notice = "\n\nOnly its first 30 bytes were kept; 27 bytes after them were cut off.";
    assert_eq!(&*answer.text, "é".repeat(15) + notice);
    let placement = placed(output, "tool:t", Some(&capped(50)), 0);
    let Placement::Descriptor(new) = placement else {
        panic!("25 characters are left")
    };
    let (answer, entry) = (new.answer(&ID), new.entry);
    assert_eq!(
        (
            &*entry.content.unlimited_reader().text().unwrap(),
            entry.cut_bytes
        ),
        (&*"é".repeat(25), 7)
    );
    assert!(
        answer.text.contains("total_chars=\"25\" cut_bytes=\"7\""),
        "{}",
        answer.text
    );
    assert!(
        answer
            .text
            .contains("Only its first 50 bytes were kept; 7 bytes after them"),
        "{}",
        answer.text
    );
}
