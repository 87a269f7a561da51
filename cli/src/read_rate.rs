//! Bounds how many bytes a second `dormouse fsck` reads.

use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;

/// Bytes a second, as in `20MB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRate(u64);

impl FromStr for ReadRate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let invalid = || {
            anyhow!("'{text}' is not a rate: give bytes a second, as in 20MB/s, 500kB/s or 1GB/s")
        };
        let rate = text.strip_suffix("/s").unwrap_or(text);
        let unit_start = rate
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rate.len());
        let (number, unit) = rate.split_at(unit_start);
        let unit_bytes: u64 = match unit {
            "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Err(invalid()),
        };
        let number: u64 = number.parse().map_err(|_| invalid())?;
        match number.checked_mul(unit_bytes) {
            Some(bytes_per_second) if bytes_per_second > 0 => Ok(Self(bytes_per_second)),
            _ => Err(invalid()),
        }
    }
}

/// Says when the next bytes may be read. Unused time earns no credit, so the rate bounds the reads
/// of every interval.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: ReadRate,
    /// The time from which on the next read is allowed. The reads allowed so far fit the rate by
    /// then.
    free_at: Duration,
}

impl Pacer {
    /// A pacer that has allowed no read yet.
    pub(crate) fn new(rate: ReadRate) -> Self {
        Self {
            rate,
            free_at: Duration::ZERO,
        }
    }

    /// How long to wait before `bytes` bytes may be read. `now` is the time since the first read.
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
            assert_eq!(text.parse::<ReadRate>().unwrap(), ReadRate(bytes), "{text}");
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
            let refused = text.parse::<ReadRate>().unwrap_err().to_string();
            assert!(refused.contains("20MB/s"), "{text}: {refused}");
        }
    }

    /// Reads of random lengths, with pauses between them: in no interval more is read than the
    /// rate allows plus one read.
    #[test]
    fn no_interval_exceeds_the_rate() {
        const MOST: u64 = 1_000;
        let rate = ReadRate(10_000);
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
        assert_eq!(waited, Duration::from_secs(10), "the whole rate is used");
    }
}
