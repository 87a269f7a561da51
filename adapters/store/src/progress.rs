//! Reports the progress of a long pass over the log, in steps of a tenth.

/// Shorter passes end too soon to be reported.
const MIN_REPORTED_BYTES: u64 = 64 << 20;

/// A pass over `total` bytes.
#[derive(Debug)]
pub(crate) struct Progress {
    total: u64,
    done: u64,
    reported: u64,
}

impl Progress {
    /// Starts a pass.
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            done: 0,
            reported: 0,
        }
    }

    /// Adds bytes that were processed. Logs each tenth.
    pub(crate) fn add(&mut self, bytes: u64) {
        if let Some(percent) = self.next_report(bytes) {
            tracing::info!("reading the log into the index: {percent} %");
        }
    }

    fn next_report(&mut self, bytes: u64) -> Option<u64> {
        self.done += bytes;
        let tenths = 10 * self.done.min(self.total) / self.total.max(1);
        let is_due = self.total >= MIN_REPORTED_BYTES && tenths > self.reported;
        self.reported = self.reported.max(tenths);
        is_due.then_some(10 * tenths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenth_of_a_long_pass_is_reported_once() {
        let reported = |total: u64, step: u64| {
            let mut progress = Progress::new(total);
            (0..total / step + 2)
                .filter_map(|_| progress.next_report(step))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            reported(MIN_REPORTED_BYTES, MIN_REPORTED_BYTES / 100),
            [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
        );
        assert_eq!(
            reported(MIN_REPORTED_BYTES, MIN_REPORTED_BYTES / 3),
            [30, 60, 90, 100]
        );
        assert!(reported(MIN_REPORTED_BYTES - 1, 1 << 20).is_empty());
    }
}
