//! A model that says and calls whatever the random generator comes up with: right, wrong, too late,
//! or not at all.

use dormouse_kernel::process::State;
use dormouse_proto::id::Pid;
use dormouse_proto::message::Block;
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, StopReason, Usage};
use dormouse_proto::record::EffectPlace;

use crate::programs::CRITIC_KEY;
use crate::world::World;

/// After so long a model has not answered.
const DEADLINE_MS: u64 = 4_000;
const MOST_ATTEMPTS: u32 = 3;
/// The last words of a reply that was paused: the one that a request may end with, in whatever
/// process it comes to stand.
pub(crate) const PAUSED: &str = "I go on when I am asked again.";

impl World {
    /// What comes of asking for the next reply of a process, and when: transient failures are tried
    /// again.
    pub(crate) fn ask_model(&mut self, state: &State) -> (u64, Result<Reply, ModelError>) {
        self.tally.count("model calls");
        let mut delay = 1 + self.random.below(120);
        for attempt in 1..=MOST_ATTEMPTS {
            let failure = match self.random.below(200) {
                0..8 => ModelErrorKind::Overloaded,
                8..12 => ModelErrorKind::CutStream,
                12..14 => ModelErrorKind::Deadline,
                14..16 => ModelErrorKind::InvalidRequest,
                16..20 => ModelErrorKind::ContextOverflow,
                _ => return (delay, Ok(self.reply(state))),
            };
            let error = ModelError::new(failure, "no");
            delay += if failure == ModelErrorKind::Deadline {
                DEADLINE_MS
            } else {
                self.random.below(700)
            };
            if !error.is_transient() || attempt == MOST_ATTEMPTS {
                self.tally.count("model calls that failed for good");
                return (delay, Err(error));
            }
            self.tally.count("model calls tried again");
        }
        (
            delay,
            Err(ModelError::new(ModelErrorKind::Unavailable, "no")),
        )
    }

    pub(crate) fn ask_for_summary(&mut self, pid: Pid) -> (u64, Result<Reply, ModelError>) {
        let delay = self.random.below(200);
        if self.random.percent(15) {
            return (delay, Err(ModelError::new(ModelErrorKind::Transport, "no")));
        }
        let text = format!("In short: {}", self.tokens.make(Some(pid)));
        (
            delay,
            Ok(Reply {
                blocks: vec![Block::text(text)],
                stop: StopReason::EndTurn,
                usage: self.usage(),
            }),
        )
    }

    fn reply(&mut self, state: &State) -> Reply {
        let mut blocks = Vec::new();
        if self.random.percent(70) {
            blocks.push(Block::text(self.words(state.pid())));
        }
        let ends = self.random.percent(if self.is_draining { 85 } else { 22 });
        let uses = if ends { 0 } else { self.uses() };
        for _ in 0..uses {
            let (name, args) = self.call(state);
            self.last_use += 1;
            self.tally.count(&format!("calls of {name}"));
            let id = format!("use_{}", self.last_use).into();
            blocks.push(Block::ToolUse {
                id,
                name: name.into(),
                args: args.into(),
                raw: None,
            });
        }
        let stop = match (self.random.below(100), uses) {
            (0..3, _) => StopReason::MaxTokens,
            (3, _) => StopReason::Refusal,
            (4, 0) => StopReason::ContextWindow,
            (5..10, 0) => StopReason::Pause,
            (_, 0) => StopReason::EndTurn,
            _ => StopReason::ToolUse,
        };
        if stop == StopReason::Pause {
            blocks.push(Block::text(PAUSED));
        }
        Reply {
            blocks,
            stop,
            usage: self.usage(),
        }
    }

    fn usage(&mut self) -> Usage {
        Usage {
            input_tokens: self.random.below(20),
            output_tokens: self.random.below(12),
            cache_read_tokens: self.random.below(12),
            ..Usage::default()
        }
    }

    fn uses(&mut self) -> u64 {
        match self.random.below(10) {
            0..6 => 1,
            6..9 => 2,
            _ => 3,
        }
    }

    /// Words with a token, at times long, at times with a part that is marked.
    pub(crate) fn words(&mut self, pid: Pid) -> String {
        let token = self.tokens.make(Some(pid));
        match self.random.below(8) {
            0 => format!("I mark <ref id=\"plan\">{token} is the plan\n</ref> of it."),
            1 => format!(
                "{token}\n{}",
                "so much to say ".repeat(self.random.below(12) as usize)
            ),
            2 => format!("</fd_content> ]]> & <{token}>"),
            _ => format!("I say {token}."),
        }
    }

    /// A tool and its arguments, as JSON text: mostly right.
    pub(crate) fn call(&mut self, state: &State) -> (String, String) {
        if self.random.percent(3) {
            return ("no_such_tool".to_owned(), "{}".to_owned());
        }
        // A model that was taken back makes its calls again.
        if self.random.percent(40)
            && let Some(repeated) = self.beyond(state)
        {
            return repeated;
        }
        let Some(spec) = self.random.pick(&self.specs_of(state)) else {
            return ("grep".to_owned(), "{}".to_owned());
        };
        let name = self.names[spec].clone();
        if self.random.percent(4) {
            let args = self
                .random
                .pick(&[
                    "",
                    "[]",
                    "{\"fd\": 7}",
                    "{\"fd\": \"fd:1\", \"no\": 1}",
                    "{",
                ])
                .unwrap_or("");
            return (name, args.to_owned());
        }
        let args = self.arguments(&name, state);
        (name, args)
    }

    /// A call that the process made beyond a point that it went back to.
    fn beyond(&mut self, state: &State) -> Option<(String, String)> {
        // What a copy knows of its original beyond the point is not known to its model.
        let own_from = state.effects().own_from;
        let effects = state.effects().numbered();
        let own = effects.filter(|(number, _)| *number >= own_from);
        let beyond: Vec<_> = own
            .map(|(_, effect)| effect)
            .filter(|effect| effect.place == EffectPlace::Beyond && !effect.args.ends_with('…'))
            .map(|effect| (effect.tool.to_string(), effect.args.to_string()))
            .collect();
        if beyond.is_empty() {
            return None;
        }
        Some(beyond[self.random.index(beyond.len())].clone())
    }

    /// Where the tools of a process stand among the names of all; those that make processes stand
    /// twice.
    fn specs_of(&self, state: &State) -> Vec<usize> {
        let tools = state.tools();
        let tools = tools.specs().iter().map(|tool| &*tool.name);
        let known = |tool: &str| self.names.iter().position(|name| name == tool);
        let mut all: Vec<_> = tools.clone().filter_map(known).collect();
        if !self.is_draining {
            let favoured = ["spawn", "grep", "send_message", "submit_result"];
            all.extend(
                tools
                    .filter(|tool| favoured.contains(tool))
                    .filter_map(known),
            );
        }
        all
    }

    fn arguments(&mut self, tool: &str, state: &State) -> String {
        let fd = self.descriptor(state);
        let token = self.tokens.make(Some(state.pid()));
        let small = 1 + self.random.below(4);
        match tool {
            "read_fd" => match self.random.below(7) {
                0 => format!("{{\"fd\": {fd}, \"read_all\": true}}"),
                1 => format!(
                    "{{\"fd\": {fd}, \"start_line\": {small}, \"end_line\": {}}}",
                    small + 1
                ),
                2 => format!(
                    "{{\"fd\": {fd}, \"mode\": \"char\", \"start\": {}, \"count\": 25}}",
                    small * 7
                ),
                3 => format!("{{\"fd\": {fd}, \"page\": {small}, \"extract_to_new_fd\": true}}"),
                4 => format!(
                    "{{\"fd\": {fd}, \"mode\": \"line\", \"start\": {small}, \"count\": 2, \
                     \"extract_to_new_fd\": true}}"
                ),
                _ => format!("{{\"fd\": {fd}, \"page\": {small}}}"),
            },
            "search_fd" if small == 1 => {
                "{\"fd\": \"*\", \"query\": \"line\", \"context\": 1}".to_owned()
            }
            "search_fd" => format!("{{\"fd\": {fd}, \"query\": \"l[a-z]+e\", \"regex\": true}}"),
            "diff_fd" => format!(
                "{{\"a\": {fd}, \"b\": {}, \"context\": {small}}}",
                self.descriptor(state)
            ),
            "fd_to_file" if small > 2 => {
                format!("{{\"fd\": {fd}, \"file_path\": \"out.txt\", \"mode\": \"append\"}}")
            }
            "fd_to_file" => format!("{{\"fd\": {fd}, \"file_path\": \"out.txt\"}}"),
            "summarize_fd" => format!("{{\"fd\": {fd}, \"again\": {}}}", small > 2),
            "ask_user" if small == 1 => {
                "{\"question\": \"Go on?\", \"choices\": [\"yes\", \"no\"]}".to_owned()
            }
            "ask_user" => format!("{{\"question\": \"Why {token}?\"}}"),
            "list_fds" => "{}".to_owned(),
            "rename_fd" => format!("{{\"fd\": {fd}, \"name\": \"name_{small}\"}}"),
            "mark_fd_section" => {
                format!(
                    "{{\"fd\": {fd}, \"start_line\": 1, \"end_line\": {small}, \"ref_id\": \
                     \"part\"}}"
                )
            }
            "get_fd_section" | "delete_fd_section" => {
                format!("{{\"fd\": {fd}, \"ref_id\": \"part\"}}")
            }
            "list_fd_sections" => format!("{{\"fd\": {fd}}}"),
            "goto" => format!(
                "{{\"position\": \"msg:{}\", \"message\": \"again {token}\"}}",
                small * 2 - 1
            ),
            "create_temp_file" if small == 1 => format!("{{\"fd\": {fd}}}"),
            "create_temp_file" => format!("{{\"content\": \"shared {token}\"}}"),
            "read_temp_file" => format!("{{\"temp_file_id\": \"temp:{}\"}}", self.file_number()),
            "write_temp_file" => format!(
                "{{\"temp_file_id\": \"temp:{}\", \"content\": \"anew {token}\", \"version\": \
                 {small}}}",
                self.file_number()
            ),
            "append_temp_file" => {
                format!(
                    "{{\"temp_file_id\": \"temp:{}\", \"content\": \"more {token}\\n\"}}",
                    self.file_number()
                )
            }
            "delete_temp_file" => format!("{{\"temp_file_id\": \"temp:{}\"}}", self.file_number()),
            "fork" => {
                let prompts: Vec<_> = (0..small.min(3))
                    .map(|child| format!("\"part {child} {token}\""))
                    .collect();
                format!("{{\"prompts\": [{}]}}", prompts.join(", "))
            }
            "explore" => {
                let judges = [
                    "",
                    ", \"judge\": {\"schema\": {\"type\": \"object\"}}",
                    ", \"judge\": {\"program\": \"critic\"}",
                ];
                let judge = judges[self.random.index(judges.len())];
                format!("{{\"prompts\": [\"one way {token}\", \"another {token}\"]{judge}}}")
            }
            "spawn" => self.spawn(&fd, &token),
            "send_message" => self.letter(state.pid(), &fd, &token),
            "receive_messages" => format!("{{\"timeout_ms\": {}}}", self.random.below(4) * 150),
            "wait" if small == 1 => "{}".to_owned(),
            "wait" => format!("{{\"timeout_ms\": {}}}", self.random.below(4) * 300),
            "list_processes" => "{}".to_owned(),
            "submit_result" if small == 1 => format!("{{\"value\": {{\"said\": \"{token}\"}}}}"),
            "submit_result" if state.program().key() == CRITIC_KEY => {
                let passes = small > 2;
                format!("{{\"value\": {{\"pass\": {passes}, \"said\": \"{token}\"}}}}")
            }
            "submit_result" => {
                format!("{{\"value\": {{\"count\": {small}, \"said\": \"{token}\"}}}}")
            }
            "wake_at" => self.alarm(&token),
            "cancel_alarm" => format!("{{\"alarm\": \"alarm:{small}\"}}"),
            "grep" if small == 1 => {
                format!("{{\"pattern\": \"see <fd:{small} />\", \"fd\": {fd}}}")
            }
            _ => format!("{{\"pattern\": \"{token}\"}}"),
        }
    }

    /// The arguments of an alarm: once or again and again, at times what is no time.
    fn alarm(&mut self, token: &str) -> String {
        let when = match self.random.below(8) {
            0 => "\"time\": \"2020-01-01T00:00:00Z\"".to_owned(),
            1 | 2 => "\"cron\": \"* * * * *\"".to_owned(),
            _ => format!("\"in\": \"{}s\"", 1 + self.random.below(4)),
        };
        let missed = self
            .random
            .pick(&["once", "each", "skip"])
            .unwrap_or("once");
        format!("{{{when}, \"note\": \"wake {token}\", \"missed\": \"{missed}\"}}")
    }

    fn file_number(&mut self) -> u64 {
        let most = if self.random.percent(60) { 2 } else { 5 };
        1 + self.random.below(most)
    }

    /// A message to a relative, to a name, or to whoever there is or was.
    fn letter(&mut self, from: Pid, fd: &str, token: &str) -> String {
        let table = &self.supervisor.table;
        let (near, all) = (table.tree(table.root(from)), table.all());
        let to = match self.random.below(12) {
            0 | 1 => "parent".to_owned(),
            2 | 3 => "planner".to_owned(),
            4 | 5 => "archive".to_owned(),
            6 => self
                .random
                .pick(&all)
                .map_or("999".to_owned(), |pid| pid.to_string()),
            _ => self
                .random
                .pick(&near)
                .map_or("999".to_owned(), |pid| pid.to_string()),
        };
        let text = format!("hear {token} {}", "and more ".repeat(self.random.index(12)));
        match self.random.below(4) {
            0 => format!("{{\"to\": \"{to}\", \"text\": \"{text}\", \"fds\": [{fd}]}}"),
            1 => format!(
                "{{\"to\": \"{to}\", \"text\": \"\", \"fds\": [{{\"fd\": {fd}, \"lines\": \
                 \"1-2\"}}]}}"
            ),
            _ => format!("{{\"to\": \"{to}\", \"text\": \"{text}\"}}"),
        }
    }

    fn spawn(&mut self, fd: &str, token: &str) -> String {
        let program = self
            .random
            .pick(&["worker", "plain", "plain", "typed", "nobody"])
            .unwrap_or("plain");
        let wait = self.random.percent(50);
        let more = match self.random.below(9) {
            8 => ", \"result_schema\": {\"required\": [\"count\"]}".to_owned(),
            0 | 1 => format!(", \"additional_preload_fds\": [{fd}]"),
            2 => ", \"additional_preload_files\": [\"notes.txt\"]".to_owned(),
            3 => format!(
                ", \"additional_preload_temp_files\": [\"temp:{}\"]",
                self.file_number()
            ),
            _ => String::new(),
        };
        format!(
            "{{\"program_name\": \"{program}\", \"query\": \"do {token}\", \"wait\": {wait}{more}}}"
        )
    }

    /// A descriptor as JSON text: one of the table mostly, or one that is not there.
    fn descriptor(&mut self, state: &State) -> String {
        let table = state.table();
        let name = match self.random.below(12) {
            0 => "fd:99".to_owned(),
            1 => "name_2".to_owned(),
            2 => format!("msg:{}", 1 + self.random.below(6)),
            3 => "ref:plan".to_owned(),
            4 => format!("fd-{}", table.next_fd().saturating_sub(1)),
            _ if table.is_empty() => "fd:1".to_owned(),
            _ => {
                let at = self.random.index(table.len());
                table
                    .iter()
                    .nth(at)
                    .map(|(id, _)| id.to_string())
                    .unwrap_or_default()
            }
        };
        format!("\"{name}\"")
    }
}
