//! Times of alarms: reads them as people and models write them, and computes when a repeated alarm
//! is due next.
//!
//! No function here reads a clock: the present time is an argument. Time zones come from the
//! database that is compiled in, so that a decision does not depend on the machine. This is the
//! only module that uses jiff and croner.

use std::fmt;
use std::sync::Arc;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use dormouse_proto::alarm::Repeat;
use dormouse_proto::label::Period;
use dormouse_proto::text::shorten;
use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, Zoned};

/// The zone of times that name none.
pub const UTC: &str = "UTC";
/// The longest cron expression, in bytes.
const MAX_CRON_BYTES: usize = 256;
/// The longest name of a time zone, in bytes.
const MAX_ZONE_BYTES: usize = 64;
/// The longest duration until an alarm: a hundred years.
const MAX_DELAY_MS: u64 = 100 * 366 * 24 * 60 * 60 * 1_000;

/// When an alarm is due, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time: milliseconds since the epoch, UTC.
    At(u64),
    /// After this many milliseconds.
    In(u64),
    /// At each time of a cron expression.
    Each(Box<Schedule>),
}

/// A time that cannot be read, with what is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not a time.
    #[error(
        "'{0}' is no time: give a date and time with its offset, such as 2026-12-24T18:00:00Z or \
         2026-12-24T18:00:00+01:00, or a local one with 'zone', such as 2026-12-24T18:00 with \
         Europe/Berlin"
    )]
    Time(String),
    /// A local time without a zone.
    #[error(
        "'{0}' has neither an offset nor a zone: add one, such as 'Z' for UTC, or give 'zone', \
         such as Europe/Berlin"
    )]
    NoZone(String),
    /// Both an offset and a zone.
    #[error("'{0}' has an offset, and 'zone' is given as well: leave one of them out")]
    TwoZones(String),
    /// Not a time zone.
    #[error("'{0}' is no time zone: give an IANA name, such as Europe/Berlin or America/New_York")]
    Zone(String),
    /// Not a duration.
    #[error(
        "'{0}' is no duration: give whole numbers with units, such as 90s, 45m, 2h30m or 7d; at \
         least 1s, at most 100 years"
    )]
    Duration(String),
    /// Not a cron expression.
    #[error(
        "'{cron}' is no cron expression: {why}. Give five fields: minute, hour, day of the month, \
         month, day of the week, such as '0 9 * * MON-FRI'"
    )]
    Cron {
        /// The expression.
        cron: String,
        /// Why it cannot be read.
        why: String,
    },
    /// A cron expression that never comes true.
    #[error("'{0}' never comes true, such as the 30th of February")]
    Never(String),
}

/// A parsed cron expression in its time zone.
#[derive(Clone)]
pub struct Schedule {
    repeat: Repeat,
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a cron expression of five fields; `zone` is an IANA name.
    ///
    /// # Errors
    /// [`ScheduleError::Cron`], [`ScheduleError::Zone`].
    pub fn parse(cron: &str, zone: &str) -> Result<Self, ScheduleError> {
        let invalid = |why: String| ScheduleError::Cron {
            cron: shorten(cron),
            why,
        };
        if cron.len() > MAX_CRON_BYTES {
            return Err(invalid(format!("it is longer than {MAX_CRON_BYTES} bytes")));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let parsed = parser
            .parse(cron)
            .map_err(|error| invalid(error.to_string().trim_end_matches('.').to_owned()))?;
        let zone_name = Arc::from(zone);
        Ok(Self {
            repeat: Repeat {
                cron: cron.trim().into(),
                zone: zone_name,
            },
            cron: parsed,
            zone: find_zone(zone)?,
        })
    }

    /// The times as they are stored.
    #[must_use]
    pub fn repeat(&self) -> &Repeat {
        &self.repeat
    }

    /// The first time after `after_ms`; `None` if there is none.
    #[must_use]
    pub fn next_after(&self, after_ms: u64) -> Option<u64> {
        let after = self.at(after_ms)?;
        let next = self.cron.find_next_occurrence(&after, false).ok()?;
        // Every search moves forward, so that an alarm can never be due for ever.
        to_ms(next.timestamp()).filter(|next_ms| *next_ms > after_ms)
    }

    /// The last time at or before `at_ms`; `None` if there is none.
    #[must_use]
    pub fn last_until(&self, at_ms: u64) -> Option<u64> {
        let at = self.at(at_ms)?;
        let last = self.cron.find_previous_occurrence(&at, true).ok()?;
        to_ms(last.timestamp()).filter(|last_ms| *last_ms <= at_ms)
    }

    fn at(&self, ms: u64) -> Option<Zoned> {
        Some(timestamp(ms)?.to_zoned(self.zone.clone()))
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schedule").field(&self.repeat).finish()
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.repeat == other.repeat
    }
}

impl Eq for Schedule {}

/// Reads a time: RFC 3339, or a local date and time with `zone`. A local time that a change of the
/// clock skips is moved forward by what is skipped; of one that is repeated the first is meant.
/// Returns milliseconds since the epoch, UTC.
///
/// # Errors
/// [`ScheduleError::Time`], [`ScheduleError::NoZone`], [`ScheduleError::TwoZones`],
/// [`ScheduleError::Zone`].
pub fn parse_time(text: &str, zone: Option<&str>) -> Result<u64, ScheduleError> {
    let text = text.trim();
    let invalid = || ScheduleError::Time(shorten(text));
    if text.len() > 64 {
        return Err(invalid());
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return match zone {
            Some(_) => Err(ScheduleError::TwoZones(shorten(text))),
            None => to_ms(timestamp).ok_or_else(invalid),
        };
    }
    let local: DateTime = text.parse().map_err(|_| invalid())?;
    let zone = zone.ok_or_else(|| ScheduleError::NoZone(shorten(text)))?;
    let zoned = find_zone(zone)?.to_zoned(local).map_err(|_| invalid())?;
    to_ms(zoned.timestamp()).ok_or_else(invalid)
}

/// Reads a duration, such as `90s` or `2h30m`, in milliseconds.
///
/// # Errors
/// [`ScheduleError::Duration`].
pub fn parse_duration(text: &str) -> Result<u64, ScheduleError> {
    let invalid = || ScheduleError::Duration(shorten(text));
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed.len() > 64 {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    let mut rest = trimmed;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let unit_ms = match unit {
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return Err(invalid()),
        };
        let part = number.checked_mul(unit_ms).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after.trim_start();
    }
    if (1_000..=MAX_DELAY_MS).contains(&total) {
        Ok(total)
    } else {
        Err(invalid())
    }
}

/// When the period of a time begins and ends, in a time zone: milliseconds since the epoch, UTC. The
/// end is the beginning of the next period.
///
/// # Errors
/// [`ScheduleError::Zone`]; [`ScheduleError::Time`] for a time beyond the calendar.
pub fn period_of(per: Period, zone: &str, at_ms: u64) -> Result<(u64, u64), ScheduleError> {
    let zone = find_zone(zone)?;
    let invalid = || ScheduleError::Time(format_time(at_ms));
    let date = timestamp(at_ms).ok_or_else(invalid)?.to_zoned(zone.clone());
    let date = date.date();
    let (first, last) = match per {
        Period::Day => (date, date),
        Period::Month => (date.first_of_month(), date.last_of_month()),
    };
    // A day whose midnight is skipped by a change of the clock begins at its first moment.
    let begin = |date: Date| to_ms(date.to_zoned(zone.clone()).ok()?.timestamp());
    let end = last.tomorrow().ok().and_then(begin);
    Ok((begin(first).ok_or_else(invalid)?, end.ok_or_else(invalid)?))
}

/// The time as RFC 3339 in UTC, to the second.
#[must_use]
pub fn format_time(ms: u64) -> String {
    match timestamp(ms / 1_000 * 1_000) {
        Some(timestamp) => timestamp.to_string(),
        None => format!("{ms} ms after 1970"),
    }
}

/// The duration in words, to the second, such as `2h 5m`.
#[must_use]
pub fn format_duration(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    format!("{:#}", SignedDuration::from_secs(seconds))
}

fn find_zone(name: &str) -> Result<TimeZone, ScheduleError> {
    if name.len() > MAX_ZONE_BYTES {
        return Err(ScheduleError::Zone(shorten(name)));
    }
    TimeZoneDatabase::bundled()
        .get(name)
        .map_err(|_| ScheduleError::Zone(shorten(name)))
}

fn timestamp(ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()
}

fn to_ms(timestamp: Timestamp) -> Option<u64> {
    timestamp.as_millisecond().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        parse_time(text, None).unwrap()
    }

    #[test]
    fn periods_are_days_and_months_of_a_zone() {
        for (per, zone, time, begin, end) in [
            (
                Period::Day,
                UTC,
                "2026-02-28T23:59:59Z",
                "2026-02-28T00:00:00Z",
                "2026-03-01T00:00:00Z",
            ),
            (
                Period::Month,
                UTC,
                "2026-02-01T00:00:00Z",
                "2026-02-01T00:00:00Z",
                "2026-03-01T00:00:00Z",
            ),
            // The clock is set back on this day, which has 25 hours.
            (
                Period::Day,
                "Europe/Berlin",
                "2026-10-25T12:00:00Z",
                "2026-10-24T22:00:00Z",
                "2026-10-25T23:00:00Z",
            ),
            // Midnight is skipped on this day.
            (
                Period::Day,
                "Africa/Cairo",
                "2024-04-26T12:00:00Z",
                "2024-04-25T22:00:00Z",
                "2024-04-26T21:00:00Z",
            ),
        ] {
            let period = period_of(per, zone, at(time)).unwrap();
            assert_eq!(
                (
                    format_time(period.0).as_str(),
                    format_time(period.1).as_str()
                ),
                (begin, end),
                "{zone} {time}"
            );
        }
        assert!(period_of(Period::Day, "Moon/Tycho", 0).is_err());
    }

    #[test]
    fn times_are_read_with_an_offset_or_in_a_zone() {
        let berlin = Some("Europe/Berlin");
        for (text, zone, expected) in [
            ("2026-12-24T18:00:00Z", None, "2026-12-24T18:00:00Z"),
            ("2026-12-24T18:00:00+01:00", None, "2026-12-24T17:00:00Z"),
            ("2026-12-24T18:00", berlin, "2026-12-24T17:00:00Z"),
            ("2026-07-01 09:00:00", berlin, "2026-07-01T07:00:00Z"),
            // The hour from 02:00 to 03:00 is skipped in spring and repeated in autumn.
            ("2026-03-29T02:30", berlin, "2026-03-29T01:30:00Z"),
            ("2026-10-25T02:30", berlin, "2026-10-25T00:30:00Z"),
        ] {
            let ms = parse_time(text, zone).unwrap();
            assert_eq!(format_time(ms), expected, "{text}");
        }
        let error = |text, zone| parse_time(text, zone).unwrap_err();
        assert!(matches!(error("tomorrow", None), ScheduleError::Time(_)));
        assert!(matches!(error("", berlin), ScheduleError::Time(_)));
        assert!(matches!(
            error("1969-01-01T00:00:00Z", None),
            ScheduleError::Time(_)
        ));
        assert!(matches!(
            error("2026-12-24T18:00", None),
            ScheduleError::NoZone(_)
        ));
        assert!(matches!(
            error("2026-12-24T18:00:00Z", berlin),
            ScheduleError::TwoZones(_)
        ));
        let moon = Some("Moon/Tycho");
        assert!(matches!(
            error("2026-12-24T18:00", moon),
            ScheduleError::Zone(_)
        ));
        let path = Some("../../etc/passwd");
        assert!(matches!(
            error("2026-12-24T18:00", path),
            ScheduleError::Zone(_)
        ));
    }

    #[test]
    fn durations_are_read_with_units() {
        for (text, ms) in [
            ("1s", 1_000),
            ("90s", 90_000),
            ("2h30m", 9_000_000),
            ("1d 12h", 129_600_000),
            ("2w", 1_209_600_000),
            ("45min", 2_700_000),
        ] {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "0s",
            "90",
            "s",
            "-5m",
            "1.5h",
            "1y",
            "5 m",
            "99999999999999999999s",
            "200000d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(format_duration(7_500_000), "2h 5m");
    }

    #[test]
    fn a_cron_expression_is_due_at_local_times() {
        let schedule = Schedule::parse("30 2 * * *", "Europe/Berlin").unwrap();
        let mut now = at("2026-03-27T12:00:00Z");
        let mut times = Vec::new();
        for _ in 0..3 {
            now = schedule.next_after(now).unwrap();
            times.push(format_time(now));
        }
        // On the 29th the clock goes from 02:00 to 03:00: the time is moved to the end of the gap.
        assert_eq!(
            times,
            [
                "2026-03-28T01:30:00Z",
                "2026-03-29T01:00:00Z",
                "2026-03-30T00:30:00Z"
            ]
        );
        // The hour that is repeated in autumn has the time once.
        let first = schedule.next_after(at("2026-10-24T12:00:00Z")).unwrap();
        let second = schedule.next_after(first).unwrap();
        assert_eq!(format_time(first), "2026-10-25T00:30:00Z");
        assert_eq!(format_time(second), "2026-10-26T01:30:00Z");
    }

    #[test]
    fn the_last_time_is_found_without_the_times_before_it() {
        let schedule = Schedule::parse("* * * * *", UTC).unwrap();
        let now = at("2026-12-24T18:00:30Z");
        assert_eq!(
            schedule.last_until(now).map(format_time).as_deref(),
            Some("2026-12-24T18:00:00Z")
        );
        let on_time = at("2026-12-24T18:00:00Z");
        assert_eq!(schedule.last_until(on_time), Some(on_time));
    }

    #[test]
    fn what_is_no_cron_expression_is_refused_by_name() {
        let long = "0 ".repeat(200);
        for cron in [
            "",
            "*",
            "0 9 * *",
            "0 9 * * * *",
            "0 0 9 * * * 2026",
            "60 * * * *",
            "* * * * 9",
            "a b c d e",
            "*/0 * * * *",
            "5-1 * * * *",
            "\u{0}",
            &long,
            "9999999999999 * * * *",
            "* * 32 * *",
            "é é é é é",
            "ß * * * *",
            "#L #L #L #L #L",
        ] {
            let error = Schedule::parse(cron, UTC).unwrap_err();
            assert!(
                matches!(error, ScheduleError::Cron { .. }),
                "{cron}: {error}"
            );
        }
        let zone = Schedule::parse("0 9 * * *", "Nowhere").unwrap_err();
        assert!(matches!(zone, ScheduleError::Zone(_)));
        let never = Schedule::parse("0 0 30 2 *", UTC).unwrap();
        assert_eq!(never.next_after(at("2026-01-01T00:00:00Z")), None);
    }

    #[test]
    fn every_next_time_is_later() {
        for cron in [
            "*/7 * * * *",
            "0 0 29 2 *",
            "59 23 L * *",
            "0 2 * * SUN#L",
            "@daily",
        ] {
            for zone in [
                UTC,
                "America/New_York",
                "Australia/Lord_Howe",
                "Asia/Kathmandu",
            ] {
                let schedule = Schedule::parse(cron, zone).unwrap();
                let mut now = at("2026-01-01T00:00:00Z");
                for _ in 0..40 {
                    let next = schedule.next_after(now).unwrap();
                    assert!(next > now, "{cron} in {zone}");
                    assert_eq!(schedule.last_until(next), Some(next), "{cron} in {zone}");
                    now = next;
                }
            }
        }
    }
}
