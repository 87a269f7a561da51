//! `wake_at`: sets an alarm, at which the process gets a message.

use std::sync::Arc;

use dormouse_machine::process::AlarmRequest;
use dormouse_machine::schedule::{Schedule, ScheduleError, UTC, When, parse_duration, parse_time};
use dormouse_proto::alarm::{MAX_NOTE_CHARS, MissedPolicy};
use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Group, Handler, Parameter, ProcessHandler, Refusal, Tool};

/// `wake_at` as a tool.
pub const TOOL: Tool = Tool {
    name: "wake_at",
    group: Group::Processes,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::WakeAt(arguments)),
};

const TIME: &str = "time";
const IN: &str = "in";
const CRON: &str = "cron";
const ZONE: &str = "zone";
const NOTE: &str = "note";
const MISSED: &str = "missed";
const PARAMETERS: [Parameter; 6] = [
    Parameter::text(
        TIME,
        "When: RFC 3339, such as 2026-12-24T18:00:00Z, or a local time with 'zone'.",
    )
    .also(&["at"]),
    Parameter::text(IN, "How long from now, such as 90s, 45m, 2h30m or 7d.").also(&["after"]),
    Parameter::text(
        CRON,
        "Again and again: five cron fields, such as '0 9 * * MON-FRI'. Until it is cancelled.",
    ),
    Parameter::text(
        ZONE,
        "The time zone of 'cron' or of a local 'time', such as Europe/Berlin; UTC if left out.",
    )
    .also(&["timezone"]),
    Parameter::text(NOTE, "What the message then says: what you need to know.")
        .at_most(MAX_NOTE_CHARS as u64)
        .also(&["message"]),
    Parameter::word(
        MISSED,
        "What becomes of times that passed while nothing could run: 'once' (one message that \
         counts them, the default), 'each' (a message each, of the last ten) or 'skip' (none).",
    )
    .one_of(MissedPolicy::WORDS),
];

const DESCRIPTION: &str = "Sets an alarm: you get a message at that time, even if the kernel was \
stopped in between. Give one of 'time', 'in' and 'cron', then end your reply to rest until then. \
The answer lists your open alarms.";

/// Parses the arguments of a call.
///
/// # Errors
/// The arguments are invalid.
pub fn arguments(args: &str) -> Result<AlarmRequest, Refusal> {
    let args = Args::parse(&TOOL, args)?;
    let when = parse_when(&args)?;
    let note = args.text(NOTE).unwrap_or_default();
    let chars = note.chars().count();
    if chars > MAX_NOTE_CHARS {
        return Err(format!(
            "No alarm was set: the note has {chars} characters, and at most {MAX_NOTE_CHARS} are \
             allowed. Say in the note where to find the rest, such as a descriptor."
        )
        .into());
    }
    let missed = args.text(MISSED).map(|word| {
        MissedPolicy::from_word(word).ok_or_else(|| {
            format!(
                "No alarm was set: '{MISSED}' is '{word}', and must be one of {}.",
                MissedPolicy::WORDS.join(", ")
            )
        })
    });
    Ok(AlarmRequest {
        when,
        note: Arc::from(note),
        missed: missed.transpose()?.unwrap_or_default(),
    })
}

fn parse_when(args: &Args) -> Result<When, Refusal> {
    let zone = args.text(ZONE);
    let given = [TIME, IN, CRON].map(|key| args.text(key));
    let to_refusal = |error: ScheduleError| Refusal::from(format!("No alarm was set: {error}."));
    match given {
        [Some(time), None, None] => parse_time(time, zone).map(When::At).map_err(to_refusal),
        [None, Some(_), None] if zone.is_some() => {
            Err("No alarm was set: a duration has no zone. Leave 'zone' out.".into())
        }
        [None, Some(delay), None] => parse_duration(delay).map(When::In).map_err(to_refusal),
        [None, None, Some(cron)] => Schedule::parse(cron, zone.unwrap_or(UTC))
            .map(|schedule| When::Each(schedule.into()))
            .map_err(to_refusal),
        _ => Err(
            "No alarm was set: give exactly one of 'time' (2026-12-24T18:00:00Z), 'in' (2h30m) \
             and 'cron' (0 9 * * MON-FRI)."
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_of_time_is_accepted() {
        let request = arguments(r#"{"in": "2h", "note": "look again", "missed": "skip"}"#);
        assert_eq!(
            request,
            Ok(AlarmRequest {
                when: When::In(7_200_000),
                note: "look again".into(),
                missed: MissedPolicy::Skip,
            })
        );
        let at = arguments(r#"{"time": "1970-01-01T01:00", "zone": "Europe/Berlin"}"#).unwrap();
        assert_eq!(at.when, When::At(0));
        let cron = arguments(r#"{"cron": "0 9 * * 1", "zone": "Asia/Tokyo"}"#).unwrap();
        let schedule = Schedule::parse("0 9 * * 1", "Asia/Tokyo").unwrap();
        assert_eq!(cron.when, When::Each(schedule.into()));
        assert_eq!(cron.missed, MissedPolicy::Once);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_valid() {
        let long = format!(
            r#"{{"in": "1h", "note": "{}"}}"#,
            "x".repeat(MAX_NOTE_CHARS + 1)
        );
        for (args, words) in [
            ("{}", "exactly one of"),
            (r#"{"in": "1h", "cron": "0 9 * * *"}"#, "exactly one of"),
            (r#"{"in": "1h", "zone": "UTC"}"#, "has no zone"),
            (r#"{"in": "soon"}"#, "2h30m"),
            (r#"{"time": "noon"}"#, "2026-12-24T18:00:00Z"),
            (r#"{"time": "2026-12-24T18:00"}"#, "zone"),
            (r#"{"cron": "daily"}"#, "five fields"),
            (r#"{"cron": "0 9 * * *", "zone": "Mars"}"#, "Europe/Berlin"),
            (r#"{"in": "1h", "missed": "never"}"#, "once, each, skip"),
            (r#"{"in": "1h", "note": 7}"#, "must be a string"),
            (&long, "at most 8000"),
        ] {
            let refusal = arguments(args).unwrap_err();
            assert!(refusal.to_string().contains(words), "{args}: {refusal}");
        }
    }
}
