//! `dormouse run`: starts a program and runs it to its end.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse::Kernel;
use dormouse::label::{Label, labels_of_tree};
use dormouse::model::ModelErrorKind;
use dormouse::program::Program;
use dormouse::user_input::{InputPart, USER_INPUT, UserInput};

use crate::args::RunFlags;
use crate::event_printer::EventPrinter;
use crate::failure::{Failure, file_failure};
use crate::kernel_setup::{KernelSetup, load_program};
use crate::process_trees::isolate_others;
use crate::requirements::warn_of_missing_permissions;
use crate::run_to_end::{WhenAsleep, run_to_end};
use crate::stop_signals::StopSignals;
use crate::store_key::Key;

/// `dormouse run`
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The program file.
    pub(crate) program: PathBuf,
    #[command(flatten)]
    pub(crate) input: Input,
    /// A label of the run, such as user=anna; may be given several times. All trees of the store
    /// with a label share its budget (dormouse label).
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<Label>,
    /// Keep the run in this folder, so that it survives a crash and can be resumed; or start it in
    /// a cluster: postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
}

/// The first input of the process: a text, then files, then standard input, each a part of its own.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The first input; without any, the program's own `user` prompt.
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Option<String>,
    /// Read the first input from a file; may be given several times, and together with --input.
    #[arg(long, value_name = "FILE")]
    pub(crate) input_file: Vec<PathBuf>,
    /// `-` reads the first input from standard input, behind the other inputs.
    #[arg(value_parser = ["-"], value_name = "-")]
    pub(crate) stdin: Option<String>,
}

/// Runs a program to its end.
pub(crate) async fn run(args: Run) -> Result<ExitCode, Failure> {
    labels_of_tree(args.label.clone()).map_err(|error| Failure::Usage(error.to_string()))?;
    let kernel = KernelSetup::new(args.store.as_deref(), &args.key)
        .run_flags(&args.flags)
        .build()
        .await?;
    let program = load_program(&kernel, &args.program)?;
    check_models_can_be_called(&kernel, &program)?;
    let mut start = kernel.start(program.clone());
    for label in &args.label {
        start = start.label(label.key(), label.value());
    }
    match input_parts(args.input)? {
        Some(user_input) => start = start.input(user_input),
        None if program.user().is_none() => {
            return Err(Failure::Usage(no_input_message(program.name())));
        }
        None => {}
    }
    let events = EventPrinter::of_run(&kernel, &args.flags);
    let stop = StopSignals::listen()?;
    warn_of_missing_permissions(&kernel, [&program]);
    isolate_others(&kernel, &[]).await?;
    let process = start.await?;
    let store = args.store.as_deref();
    let when_asleep = WhenAsleep::from_flags(&args.flags, store);
    run_to_end(kernel, process.into(), when_asleep, events, stop, store).await
}

/// Refuses a program whose models cannot be called, for want of a key, a region or a valid address:
/// its process would be created only to fail.
fn check_models_can_be_called(kernel: &Kernel, program: &Program) -> Result<(), Failure> {
    match kernel.check_models(program) {
        Err(error)
            if matches!(
                error.kind,
                ModelErrorKind::Authentication | ModelErrorKind::InvalidRequest
            ) =>
        {
            Err(Failure::Usage(format!("nothing was started: {error}")))
        }
        // Any other failure may be temporary. If it is not, the first model call reports it.
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(crate) fn no_input_message(program: &str) -> String {
    format!(
        "program {program} has no user prompt: give it an input with --input TEXT, --input-file \
         FILE or -"
    )
}

/// The parts of the input in the order text, files, standard input. Only the text of `--input`
/// counts as typed by the user. A single part always has the source `user_input`, wherever it was
/// read from.
///
/// # Errors
/// [`Failure::Usage`] if there are parts, and nothing in them but white space: a model could not
/// say what is wanted of it.
pub(crate) fn input_parts(input: Input) -> Result<Option<UserInput>, Failure> {
    let mut parts = Vec::new();
    if let Some(text) = input.input {
        parts.push(InputPart::text(text));
    }
    for path in input.input_file {
        let bytes = std::fs::read(&path).map_err(|error| file_failure(&path, &error))?;
        parts.push(InputPart::new(format!("file:{}", path.display()), bytes));
    }
    if input.stdin.is_some() {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
        parts.push(InputPart::new("stdin", bytes));
    }
    if let [only_part] = &mut parts[..] {
        only_part.source = USER_INPUT.into();
    }
    let input = UserInput { parts };
    match input.parts.is_empty() {
        true => Ok(None),
        false if input.is_blank() => Err(Failure::Usage(
            "the input is empty: give a text that says something, or a file with content"
                .to_owned(),
        )),
        false => Ok(Some(input)),
    }
}
