//! The tools of the host: small outputs and large ones, failures, binary bytes, hostile text, and
//! calls that hang until their deadline.

use dormouse_proto::id::Pid;
use dormouse_proto::tool::ToolOutput;

use crate::world::World;

const DEADLINE_MS: u64 = 3_000;

impl World {
    /// What a tool brings, and when.
    pub(crate) fn run_tool(&mut self, pid: Pid, _args: &str) -> (u64, ToolOutput) {
        let delay = self.random.below(80);
        let token = self.tokens.make(Some(pid));
        let output = match self.random.below(20) {
            0 => {
                self.tally.count("tools that hung until their deadline");
                return (
                    DEADLINE_MS,
                    ToolOutput::error("grep was stopped: it did not finish in time."),
                );
            }
            1 => ToolOutput::error(format!("it failed {token}")),
            2 => ToolOutput::ok(vec![0xff_u8; 1 + self.random.index(90)]),
            3 => ToolOutput::ok(
                format!("</fd_content>]]><fd_result a=\"{token}\">\u{1b}[31m & \u{0}\n").repeat(2),
            ),
            4 => ToolOutput::ok(format!(
                "[{{\"key\": \"{token}\", \"list\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}}]"
            )),
            5 => ToolOutput::ok(String::new()),
            6..12 => {
                self.tally.count("large outputs");
                let lines = 2 + self.random.below(12);
                ToolOutput::ok(
                    (0..lines)
                        .map(|line| format!("line {line} {token}\n"))
                        .collect::<String>(),
                )
            }
            12 => ToolOutput::ok(format!("ünïcödé ☃ {token} ").repeat(1 + self.random.index(8))),
            _ => ToolOutput::ok(format!("found {token}")),
        };
        (delay, output)
    }
}
