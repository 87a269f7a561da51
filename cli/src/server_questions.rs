//! Questions of tool servers to the user (elicitations), which are answered at the terminal while
//! processes run.
//!
//! Such a question lives in the memory of the kernel, so no later command can answer it. Where nobody
//! can answer, it is declined at once, with a line that says so. What a server writes is not trusted:
//! each line says which server asks, and nothing is answered without the user.

mod form;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::Duration;

use dormouse::{Event, Kernel, ServerQuestion, WantedAnswer};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use serde_json::Value;
use tokio::sync::mpsc;

use self::form::{Form, Typed};
use crate::args::RunFlags;
use crate::terminal::{OutputFormat, coloured_stderr, one_line, print_prompt, print_stderr};

/// How long a question waits for the user. Then its server is told that nobody answered.
pub(crate) const QUESTIONS_EXPIRE: Duration = Duration::from_secs(60 * 60);

/// Whether somebody can answer the questions of tool servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    AtTerminal,
    Nobody,
}

impl Answers {
    /// The user of a command with these flags, if there is a terminal to ask at.
    pub(crate) fn of_run(flags: &RunFlags) -> Self {
        match flags.unattended {
            true => Self::Nobody,
            false => Self::of_format(OutputFormat::from_json_flag(flags.json)),
        }
    }

    /// The user of a command with this output. JSON is for programs, which cannot answer.
    pub(crate) fn of_format(format: OutputFormat) -> Self {
        let has_terminal = std::io::stdin().is_terminal() && coloured_stderr().is_terminal();
        match format {
            OutputFormat::Text if has_terminal && is_in_foreground() => Self::AtTerminal,
            OutputFormat::Text | OutputFormat::Json => Self::Nobody,
        }
    }
}

/// Whether this program may read from its terminal: a background job would be stopped.
fn is_in_foreground() -> bool {
    // A terminal that controls nothing stops nobody.
    let group = tcgetpgrp(std::io::stdin()).ok();
    group.is_none_or(|group| group == getpgrp())
}

/// Answers the questions of one kernel, one after the other.
pub(crate) struct Answerer {
    kernel: Kernel,
    answers: Answers,
    /// The question that the user is asked.
    asking: Option<Asking>,
    waiting: VecDeque<ServerQuestion>,
    typed: Option<TypedLines>,
}

struct Asking {
    question: ServerQuestion,
    form: Form,
}

impl Answerer {
    pub(crate) fn new(kernel: Kernel, answers: Answers) -> Self {
        Self {
            kernel,
            answers,
            asking: None,
            waiting: VecDeque::new(),
            typed: None,
        }
    }

    /// Whether the user is asked something at this moment.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// Whether the event is a question that the user is going to be asked.
    pub(crate) fn will_ask(&self, event: &Event) -> bool {
        self.answers == Answers::AtTerminal && matches!(event, Event::ServerAsks { .. })
    }

    /// Begins to ask, declines, or gives up asking.
    pub(crate) fn handle_event(&mut self, event: Event) {
        match event {
            Event::ServerAsks { question } if self.answers == Answers::AtTerminal => {
                self.waiting.push_back(question);
                self.ask_next();
            }
            Event::ServerAsks { question } => self.decline(
                &question,
                "nobody can answer here: run it at a terminal, without --json and --unattended",
            ),
            Event::ServerQuestionClosed { id } => self.close(id),
            _ => {}
        }
    }

    /// What the user types next: a line, or `None` at the end of the input. Pending while the user is
    /// not asked anything. Nothing is lost if the future is dropped.
    pub(crate) async fn next_line(&mut self) -> Option<String> {
        match &self.asking {
            Some(_) => {
                self.typed
                    .get_or_insert_with(TypedLines::start)
                    .next()
                    .await
            }
            None => std::future::pending().await,
        }
    }

    /// Handles what the user typed.
    pub(crate) fn handle_line(&mut self, line: Option<String>) {
        let Some(asking) = &mut self.asking else {
            return;
        };
        match line.map_or(Typed::Declined, |line| asking.form.take(&line)) {
            Typed::Value => print_prompt(&asking.form.prompt()),
            Typed::Wrong(why) => {
                print_stderr(&format!("  {}", one_line(&why)));
                print_prompt(&asking.form.prompt());
            }
            Typed::Declined => {
                if let Some(Asking { question, .. }) = self.asking.take() {
                    // The line of the prompt has no end yet.
                    print_stderr("");
                    self.decline(&question, "you gave no answer");
                }
                self.ask_next();
            }
            Typed::Answer(value) => self.answer(value),
        }
    }

    fn answer(&mut self, value: Value) {
        let Some(asking) = &mut self.asking else {
            return;
        };
        let id = asking.question.id;
        match self.kernel.answer_server(id, value) {
            Ok(()) => {
                self.asking = None;
                self.ask_next();
            }
            // The question waits on, or is closed: then an event says so.
            Err(error) => {
                print_stderr(&format!("  {}", one_line(&error.to_string())));
                asking.form = Form::new(&asking.question.wanted);
                print_prompt(&asking.form.prompt());
            }
        }
    }

    /// Asks the next question, unless one is being asked.
    fn ask_next(&mut self) {
        if self.is_asking() {
            return;
        }
        let Some(question) = self.waiting.pop_front() else {
            return;
        };
        // What was typed for a question that is closed answers no other one.
        if let Some(typed) = &mut self.typed {
            typed.discard();
        }
        let form = Form::new(&question.wanted);
        print_stderr(&describe(&question));
        if let WantedAnswer::Visit(url) = &question.wanted {
            print_stderr(&format!("  It wants you to open {}", one_line(url)));
        }
        print_stderr(form.help());
        print_prompt(&form.prompt());
        self.asking = Some(Asking { question, form });
    }

    /// A question waits no more: its call has ended, or it has expired.
    fn close(&mut self, id: u64) {
        self.waiting.retain(|question| question.id != id);
        if self.asking.as_ref().is_some_and(|it| it.question.id == id) {
            self.asking = None;
            print_stderr("\nThe tool server waits for this answer no more.");
            self.ask_next();
        }
    }

    fn decline(&mut self, question: &ServerQuestion, why: &str) {
        print_stderr(&format!("{} - declined, since {why}", describe(question)));
        // A question that is closed has no answer any more.
        let _ = self.kernel.decline_server(question.id);
    }
}

/// The question in one line.
fn describe(question: &ServerQuestion) -> String {
    let ServerQuestion { server, text, .. } = question;
    format!(
        "The tool server {} asks: {}",
        one_line(server),
        one_line(text)
    )
}

/// Lines of standard input, each of which is read once it is asked for.
///
/// A read of a terminal cannot be cancelled, so it happens in a thread of its own, which does not keep
/// the program from exiting.
struct TypedLines {
    requests: std::sync::mpsc::Sender<()>,
    lines: mpsc::UnboundedReceiver<Option<String>>,
    is_reading: bool,
}

impl TypedLines {
    fn start() -> Self {
        let (requests, requested) = std::sync::mpsc::channel();
        let (typed, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            while requested.recv().is_ok() {
                let mut line = String::new();
                let read = std::io::stdin().read_line(&mut line);
                let line = matches!(read, Ok(1..)).then_some(line);
                if typed.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            requests,
            lines,
            is_reading: false,
        }
    }

    /// The next line; `None` at the end of the input.
    async fn next(&mut self) -> Option<String> {
        if !self.is_reading {
            self.is_reading = true;
            // Without the thread there is no input, which the channel below says.
            let _ = self.requests.send(());
        }
        let line = self.lines.recv().await;
        self.is_reading = false;
        line.flatten()
    }

    /// Drops a line that was read and not used.
    fn discard(&mut self) {
        if self.lines.try_recv().is_ok() {
            self.is_reading = false;
        }
    }
}
