//! How many bytes a second may be read.

use std::str::FromStr;
use std::time::Duration;

/// Bytes a second, as in `20MB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no rate: give bytes a second, as in 20MB/s, 500kB/s or 1GB/s");
        let rate = text.strip_suffix("/s").unwrap_or(text);
        let digits = rate
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rate.len());
        let unit: u64 = match &rate[digits..] {
            "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Err(wrong()),
        };
        let number: u64 = rate[..digits].parse().map_err(|_| wrong())?;
        number
            .checked_mul(unit)
            .filter(|bytes| *bytes > 0)
            .map(Self)
            .ok_or_else(wrong)
    }
}

/// Says when the next bytes may be read. What was not read in time is not made up for later, so
/// that the rate is a bound at any time.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: Rate,
    /// When all that was allowed has been read at that rate.
    free_at: Duration,
}

impl Pacer {
    /// One that has allowed nothing yet.
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            free_at: Duration::ZERO,
        }
    }

    /// How long to wait before so many bytes are read, when it is `now` since the beginning.
    pub(crate) fn wait(&mut self, now: Duration, bytes: u64) -> Duration {
        let begins_at = self.free_at.max(now);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.0);
        self.free_at = begins_at.saturating_add(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ));
        begins_at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_of_bytes_with_its_unit() {
        let cases = [
            ("20MB/s", 20_000_000),
            ("20MB", 20_000_000),
            ("1B/s", 1),
            ("500kB/s", 500_000),
            ("3GB/s", 3_000_000_000),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Rate(bytes)), "{text}");
        }
        for text in [
            "",
            "20",
            "MB/s",
            "0MB/s",
            "-1MB/s",
            "20 MB/s",
            "20mb/s",
            "20MB/h",
            "99999999999999GB/s",
            "2é",
        ] {
            let refused = text.parse::<Rate>().unwrap_err();
            assert!(refused.contains("20MB/s"), "{text}: {refused}");
        }
    }

    /// Reads of random lengths, with pauses between them: in no stretch of time more is read than
    /// the rate allows and one read.
    #[test]
    fn no_stretch_of_time_sees_more_than_the_rate_allows() {
        const MOST: u64 = 1_000;
        let rate = Rate(10_000);
        for seed in 1..200_u64 {
            let (mut random, mut now, mut reads) = (seed, Duration::ZERO, Vec::new());
            let mut below = |limit: u64| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % limit
            };
            let mut pacer = Pacer::new(rate);
            for _ in 0..100 {
                let bytes = 1 + below(MOST);
                now += pacer.wait(now, bytes);
                reads.push((now, bytes));
                now += Duration::from_millis(if below(10) == 0 {
                    below(3_000)
                } else {
                    below(5)
                });
            }
            for (first, (from, _)) in reads.iter().enumerate() {
                let mut read = 0;
                for (at, bytes) in &reads[first..] {
                    read += bytes;
                    let allowed =
                        (*at - *from).as_millis() as u64 * rate.0 / 1_000 + rate.0 / 1_000;
                    assert!(
                        read <= allowed + bytes,
                        "seed {seed}: {read} bytes in {:?}",
                        *at - *from
                    );
                }
            }
        }
        let mut pacer = Pacer::new(rate);
        let waited: Duration = (0..11)
            .map(|_| pacer.wait(Duration::ZERO, 10_000))
            .max()
            .unwrap();
        assert_eq!(
            waited,
            Duration::from_secs(10),
            "and what is allowed is allowed"
        );
    }
}
