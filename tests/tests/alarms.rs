//! Alarms in whole kernels: who is woken, when, and that nothing else is read for it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use dormouse::alarm::{AlarmId, MissedPolicy};
use dormouse::checkpoint::Scope;
use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::ports::Model;
use dormouse::process::ExitStatus;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::user_input::InputPart;
use dormouse::{
    Event, Kernel, KernelBuilder, KernelError, NotFound, Position, Process, Recovery, StartError,
};
use dormouse_tests::{FnModel, asks, events_until, program, says, within};

const TOOLS: &str = "[tools]\nenabled = [\"wake_at\", \"cancel_alarm\"]\n";
const HOUR: Duration = Duration::from_secs(3_600);

fn open(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
}

/// Sets an alarm as soon as it is spoken to; on an alarm it says what woke it.
fn sleeper(args: &'static str) -> impl Model {
    FnModel(move |request: Request| async move {
        let last = request.messages.last().unwrap().text();
        Ok(match request.messages.len() {
            1 => asks(&[("wake_at", args)]),
            3 => says("good night"),
            _ => says(&format!("woken by {last}")),
        })
    })
}

/// Says what it was told.
fn echo() -> impl Model {
    FnModel(|request: Request| async move { Ok(says(&request.messages.last().unwrap().text())) })
}

fn says_how_often(calls: Arc<AtomicUsize>) -> impl Model {
    FnModel(move |_: Request| {
        let count = calls.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(says(&count.to_string())) }
    })
}

async fn status(kernel: &Kernel, pid: Pid) -> &'static str {
    let processes = kernel.processes().await.unwrap();
    let found = processes.iter().find(|info| info.row.pid == pid);
    found.unwrap().status.word()
}

async fn rests(process: &Process) {
    let process = process.clone();
    within(async move {
        let is_resting = |view: &dormouse::ProcessView| view.next_alarm_ms.is_some();
        process.wait_for(is_resting).await.unwrap()
    })
    .await;
}

/// The facts of a process with this name.
async fn count_facts(kernel: &Kernel, pid: Pid, name: &str) -> usize {
    let facts = kernel.log(pid).await.unwrap();
    facts.iter().filter(|line| line.name == name).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_sleeps_on_disk_until_its_alarm_and_fires_once() {
    let folder = tempfile::tempdir().unwrap();
    let model = || sleeper(r#"{"in": "1s", "note": "the \"late\" shift"}"#);
    let kernel = open(folder.path())
        .model("m", model())
        .build()
        .await
        .unwrap();
    let task = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    let pid = task.pid();
    rests(&task).await;
    assert_eq!(task.exit(), None, "a task with an open alarm does not end");
    within(task.hibernate()).await.unwrap();
    assert_eq!(status(&kernel, pid).await, "asleep");
    let alarms = task.alarms().await.unwrap();
    assert_eq!(&*alarms[0].note, "the \"late\" shift");
    assert_eq!(status(&kernel, pid).await, "asleep", "looking wakes nobody");
    drop(task);
    kernel.shutdown().await.unwrap();

    // While nothing runs, the time passes.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let kernel = open(folder.path())
        .model("m", model())
        .build()
        .await
        .unwrap();
    assert_eq!(status(&kernel, pid).await, "held");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        status(&kernel, pid).await,
        "held",
        "held processes are not woken"
    );
    kernel.resume_lazily([pid]).unwrap();
    let task = kernel.process(pid).await.unwrap();
    let exit = within(task.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done);
    assert!(
        exit.message.contains("the \"late\" shift"),
        "{}",
        exit.message
    );
    drop(task);
    kernel.shutdown().await.unwrap();

    let kernel = open(folder.path())
        .model("m", model())
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    assert_eq!(count_facts(&kernel, pid, "alarm_fired").await, 1, "ALARM-1");
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_that_is_not_due_is_resumed_without_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let kernel = open(folder.path()).model("m", says_how_often(calls.clone()));
    let kernel = kernel.build().await.unwrap();
    let far = SystemTime::now() + HOUR;
    let far_away = kernel
        .start(program(&kernel, ""))
        .input("late")
        .at(far)
        .await
        .unwrap();
    let daily = kernel
        .start(program(&kernel, ""))
        .input("news")
        .every("0 9 * * *", "Europe/Berlin");
    let daily = daily.missed(MissedPolicy::Skip).await.unwrap();
    let soon = SystemTime::now() + Duration::from_millis(1_500);
    let soon = kernel
        .start(program(&kernel, ""))
        .input("soon")
        .at(soon)
        .await
        .unwrap();
    let pids = [far_away.pid(), daily.pid(), soon.pid()];
    for process in [&far_away, &daily, &soon] {
        rests(process).await;
    }
    kernel.shutdown().await.unwrap();
    drop((far_away, daily, soon));

    let kernel = open(folder.path())
        .model("m", says_how_often(calls.clone()))
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    let is_exit = |event: &Event| matches!(event, Event::Exited { .. });
    let events = events_until(kernel.events(), is_exit).await;
    assert!(
        events.iter().all(|event| event.pid() == Some(pids[2])),
        "{events:?}"
    );
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    for pid in &pids[..2] {
        assert_eq!(status(&kernel, *pid).await, "asleep");
    }
    let resumed = kernel.resume_all().await.unwrap();
    assert_eq!(resumed.len(), 0, "sleepers are left asleep");
    let daily = kernel.process(pids[1]).await.unwrap();
    let alarm = daily.alarms().await.unwrap().remove(0);
    assert_eq!((alarm.id, alarm.missed), (AlarmId(1), MissedPolicy::Skip));
    within(daily.cancel_alarm(AlarmId(1))).await.unwrap();
    assert_eq!(daily.alarms().await.unwrap(), []);
    assert_eq!(daily.exit(), None, "a session stays");
    let again = within(daily.cancel_alarm(AlarmId(1))).await;
    let is_unknown = matches!(again, Err(KernelError::NotFound(NotFound::Alarm { .. })));
    assert!(is_unknown, "{again:?}");
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_are_due_at_once_are_all_woken() {
    let calls = Arc::new(AtomicUsize::new(0));
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", says_how_often(calls.clone()))
        .hibernate_after(Duration::ZERO)
        .build()
        .await
        .unwrap();
    let due = SystemTime::now() + Duration::from_millis(500);
    let mut sleepers = Vec::new();
    for _ in 0..200 {
        let start = kernel.start(program(&kernel, "")).input("now");
        sleepers.push(start.at(due).await.unwrap());
    }
    for sleeper in &sleepers {
        let exit = within(sleeper.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Done);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 200, "each once");
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_and_an_import_have_alarms_of_their_own() {
    let calls = Arc::new(AtomicUsize::new(0));
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path()).model("m", says_how_often(calls.clone()));
    let kernel = kernel.build().await.unwrap();
    let due = SystemTime::now() + HOUR;
    let original = kernel
        .start(program(&kernel, ""))
        .input("x")
        .at(due)
        .await
        .unwrap();
    rests(&original).await;
    let branch = within(kernel.branch(original.pid(), Position::Now).into_future())
        .await
        .unwrap();
    rests(&branch).await;
    within(original.cancel_alarm(AlarmId(1))).await.unwrap();
    assert_eq!(
        within(original.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    assert_eq!(branch.alarms().await.unwrap().len(), 1);
    let export = kernel
        .export(branch.pid(), Scope::Process)
        .write(Vec::new());
    let (file, _) = within(export).await.unwrap();

    let other_folder = tempfile::tempdir().unwrap();
    let other = open(other_folder.path()).model("m", says_how_often(calls.clone()));
    let other = other.build().await.unwrap();
    let imported = within(other.import(std::io::Cursor::new(file)).into_future())
        .await
        .unwrap();
    let pid = imported.process.pid();
    assert_eq!(imported.process.alarms().await.unwrap().len(), 1);
    drop(imported);
    other.shutdown().await.unwrap();
    let other = open(other_folder.path()).build().await.unwrap();
    let rows = other.processes().await.unwrap();
    assert_eq!(rows[0].row.pid, pid);
    assert!(
        rows[0].row.waiting.alarm_ms().is_some(),
        "the table knows when it is due"
    );
    other.shutdown().await.unwrap();
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_start_at_a_time_that_cannot_be_is_refused() {
    let kernel = Kernel::builder().model("m", echo()).build().await.unwrap();
    for (cron, zone) in [
        ("0 9 * *", "UTC"),
        ("0 9 * * *", "Moon"),
        ("0 0 30 2 *", "UTC"),
    ] {
        let start = kernel.start(program(&kernel, "")).every(cron, zone);
        let refused = start.await.unwrap_err();
        let is_schedule = matches!(refused, KernelError::Start(StartError::Schedule(_)));
        assert!(is_schedule, "{cron} {zone}: {refused}");
    }
    let long = "x".repeat(8_001);
    let start = kernel
        .start(program(&kernel, ""))
        .input(long)
        .at(SystemTime::now());
    let refused = start.await.unwrap_err();
    let is_too_long = matches!(refused, KernelError::Start(StartError::NoteTooLong { .. }));
    assert!(is_too_long, "{refused}");
    let parts = [
        InputPart::text("look"),
        InputPart::new("file:a.png", vec![0xff, 0xd8]),
    ];
    let start = kernel
        .start(program(&kernel, ""))
        .input(parts)
        .at(SystemTime::now());
    let refused = start.await.unwrap_err();
    let is_not_text = matches!(
        refused,
        KernelError::Start(StartError::NoteNotText { part: 2 })
    );
    assert!(is_not_text, "{refused}");
    assert!(kernel.processes().await.unwrap().is_empty());
    // A time that is over is due at once, also in a kernel without a store.
    let past = SystemTime::UNIX_EPOCH;
    let due = kernel
        .start(program(&kernel, ""))
        .input("x")
        .at(past)
        .await
        .unwrap();
    let exit = within(due.wait()).await.unwrap();
    assert!(
        exit.message.contains("1970-01-01T00:00:00Z"),
        "{}",
        exit.message
    );
    kernel.shutdown().await.unwrap();
}
