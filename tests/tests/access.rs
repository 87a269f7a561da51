//! No path leads around access: each tool of the kernel, by its own name and by an alias, with
//! another access than its own, called by the host and by a model, in processes of each origin. A
//! name leads to one tool.

use dormouse::host::{LocalHost, Permissions};
use dormouse::model::Request;
use dormouse::process::Origin;
use dormouse::store::MemoryStore;
use dormouse::tool::Access;
use dormouse::{FnTool, Kernel, KernelBuilder, KernelError, NameError};
use dormouse_kernel::syscall;
use dormouse_tests::{FnModel, Requests, asks, check_histories, program, results, says, within};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

const LEVELS: [Access; 3] = [Access::Read, Access::Write, Access::Admin];

/// What each tool needs where a program says nothing else, and so what a process without it cannot
/// do.
const NEEDED: [(&str, Access); 31] = [
    ("read_fd", Access::Read),
    ("search_fd", Access::Read),
    ("diff_fd", Access::Read),
    ("fd_to_file", Access::Write),
    ("summarize_fd", Access::Read),
    ("list_fds", Access::Read),
    ("rename_fd", Access::Read),
    ("mark_fd_section", Access::Read),
    ("get_fd_section", Access::Read),
    ("list_fd_sections", Access::Read),
    ("delete_fd_section", Access::Read),
    ("fork", Access::Admin),
    ("explore", Access::Admin),
    ("spawn", Access::Admin),
    ("goto", Access::Write),
    ("checkpoint_process", Access::Admin),
    ("restore_process", Access::Admin),
    ("list_checkpoints", Access::Admin),
    ("send_message", Access::Write),
    ("receive_messages", Access::Read),
    ("wait", Access::Read),
    ("list_processes", Access::Read),
    ("ask_user", Access::Read),
    ("submit_result", Access::Read),
    ("wake_at", Access::Write),
    ("cancel_alarm", Access::Write),
    ("create_temp_file", Access::Write),
    ("read_temp_file", Access::Read),
    ("write_temp_file", Access::Write),
    ("append_temp_file", Access::Write),
    ("delete_temp_file", Access::Write),
];

/// How a program enables all tools: under which names, and with which access in place of their own.
#[derive(Clone, Copy, Debug)]
struct Enabled {
    prefix: &'static str,
    access: Option<Access>,
}

impl Enabled {
    fn all() -> impl Iterator<Item = Self> {
        let access = [
            None,
            Some(Access::Read),
            Some(Access::Write),
            Some(Access::Admin),
        ];
        let both = |access| ["", "my_"].map(|prefix| Self { prefix, access });
        access.into_iter().flat_map(both)
    }

    fn name(self, tool: &str) -> String {
        format!("{}{tool}", self.prefix)
    }

    /// The section of a program.
    fn toml(self) -> String {
        let access = self
            .access
            .map(|access| format!(", access = \"{}\"", access.word()))
            .unwrap_or_default();
        let entry = |(tool, _): &(&str, _)| {
            let alias = self.name(tool);
            format!("    {{ name = \"{tool}\", alias = \"{alias}\"{access} }},\n")
        };
        format!(
            "[result]\nschema = {{ type = \"string\" }}\nattempts = 2\n[tools]\nenabled = [\n{}]\n",
            NEEDED.iter().map(entry).collect::<String>()
        )
    }

    /// That a process of `has` was let through where it may call a tool, and nowhere else.
    fn check(
        self,
        has: Access,
        (tool, needed): (&str, Access),
        (text, is_error): (&str, bool),
        way: &str,
    ) {
        let (needed, name) = (self.access.unwrap_or(needed), self.name(tool));
        let (needs, given) = (needed.word(), has.word());
        let denied =
            format!("Access denied: '{name}' needs {needs} access, and this process has {given}.");
        let is_denied = needed > has;
        assert_eq!(
            is_denied,
            text == denied && is_error,
            "{way}, {self:?}, {given}: {name}: {text}"
        );
        let is_refused = text.contains("Access denied") || text.contains("There is no tool");
        assert_eq!(
            is_denied, is_refused,
            "{way}, {self:?}, {given}: {name}: {text}"
        );
    }
}

#[test]
fn the_tools_are_those_of_the_kernel() {
    assert!(
        NEEDED
            .map(|(tool, _)| tool)
            .into_iter()
            .eq(syscall::names())
    );
}

#[tokio::test]
async fn the_host_calls_in_the_name_of_a_process_and_can_do_no_more_than_that() {
    let model = FnModel(|_| async { Ok(says("x")) });
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    for enabled in Enabled::all() {
        for has in LEVELS {
            let start = kernel
                .start(program(&kernel, &enabled.toml()))
                .without_input()
                .session()
                .access(has);
            let process = start.await.unwrap();
            for (tool, needed) in NEEDED {
                let answer = within(process.call(enabled.name(tool), "{}"))
                    .await
                    .unwrap();
                enabled.check(has, (tool, needed), (&answer.text, answer.is_error), "host");
                if !enabled.prefix.is_empty() {
                    let answer = within(process.call(tool, "{}")).await.unwrap();
                    assert!(
                        answer.is_error
                            && answer
                                .text
                                .starts_with(&format!("There is no tool '{tool}'")),
                        "{answer:?}"
                    );
                }
            }
        }
    }
}

/// What a process is told to do: to try all tools, or to make a child that does.
const TRY: &str = "TRY ALL";
const FORK: &str = "FORK ONE";
const SPAWN: &str = "SPAWN ONE";

/// Does what it is told, under whatever names it was given tools.
async fn obedient(request: Request) -> Result<dormouse::model::Reply, dormouse::model::ModelError> {
    let last = request.messages.last().unwrap();
    let told = last.text()
        + &results(&request, 0)
            .first()
            .map(|(text, _)| text.clone())
            .unwrap_or_default();
    let given = |tool: &str| {
        request
            .tools
            .iter()
            .find(|given| given.name.ends_with(tool))
            .unwrap()
            .name
            .to_string()
    };
    Ok(if told.contains(TRY) {
        let names: Vec<_> = NEEDED.iter().map(|(tool, _)| given(tool)).collect();
        asks(
            &names
                .iter()
                .map(|name| (name.as_str(), "{}"))
                .collect::<Vec<_>>(),
        )
    } else if told.contains(FORK) {
        asks(&[(&given("fork"), &json!({ "prompts": [TRY] }).to_string())])
    } else if told.contains(SPAWN) {
        asks(&[(
            &given("spawn"),
            &json!({ "program_name": "main", "query": TRY }).to_string(),
        )])
    } else {
        says("done")
    })
}

/// A folder with `main.toml`, which links itself.
fn folder(enabled: Enabled) -> (tempfile::TempDir, LocalHost) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n{}[linked_programs]\nmain = \
         \"main.toml\"\n",
        enabled.toml()
    );
    std::fs::write(folder.path().join("main.toml"), text).unwrap();
    let host = LocalHost::new(Permissions::none(), folder.path()).unwrap();
    (folder, host)
}

/// What the tools answered to the first process that tried them, which is `pid`.
fn tried(requests: &Requests, pid: u64) -> Vec<(String, bool)> {
    let asked = requests.of(pid);
    let all = asked.iter().map(|request| results(request, 0));
    all.into_iter()
        .find(|answers| answers.len() == NEEDED.len())
        .unwrap_or_else(|| panic!("{pid} tried nothing"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_can_do_no_more_than_its_process_wherever_that_comes_from() {
    for enabled in Enabled::all() {
        let (folder, host) = folder(enabled);
        let requests = Requests::default();
        let builder = Kernel::open(MemoryStore::new())
            .model("m", requests.record(FnModel(obedient)))
            .host(host);
        let kernel = builder.build().await.unwrap();
        let mut made = 0;
        for has in LEVELS {
            let start = |input| {
                let main = kernel
                    .load(folder.path().join("main.toml"))
                    .unwrap()
                    .program;
                kernel.start(main).input(input).access(has).into_future()
            };
            let check = |pid, has, way| {
                for (tool, (text, is_error)) in NEEDED.into_iter().zip(tried(&requests, pid)) {
                    enabled.check(has, tool, (&text, is_error), way);
                }
            };
            let own = start(TRY).await.unwrap();
            within(own.wait()).await.unwrap();
            check(own.pid().0, has, "its own model");
            let restored = within(kernel.copy(own.pid(), None)).await.unwrap();
            within(restored.input(TRY)).await.unwrap();
            within(restored.wait()).await.unwrap();
            check(restored.pid().0, has, "restored");
            for (told, child_has) in [(FORK, has.min(Access::Write)), (SPAWN, has)] {
                let parent = start(told).await.unwrap();
                within(parent.wait()).await.unwrap();
                let children = parent.children().await.unwrap();
                assert_eq!(
                    children.len(),
                    usize::from(enabled.access.unwrap_or(Access::Admin) <= has),
                    "{told}"
                );
                for child in children {
                    check(child.row.pid.0, child_has, told);
                    let is_forked = matches!(child.row.origin, Origin::Forked { .. });
                    assert_eq!(is_forked, told == FORK);
                    // What a child is restored as, or a host makes of it, is still a child's.
                    let copy = within(kernel.copy(child.row.pid, None)).await.unwrap();
                    within(copy.input(TRY)).await.unwrap();
                    within(copy.wait()).await.unwrap();
                    let last = requests.of(copy.pid().0).pop().unwrap();
                    for (tool, (text, is_error)) in NEEDED.into_iter().zip(results(&last, 0)) {
                        enabled.check(child_has, tool, (&text, is_error), "restored from a child");
                    }
                    made += 1;
                }
            }
        }
        assert!(made > 0, "{enabled:?}");
        check_histories(&requests);
    }
}

#[tokio::test]
async fn a_name_that_a_tool_has_is_no_alias_and_no_command() {
    let command = "[[tools.command]]\nname = \"mine\"\ndescription = \"Prints the folder.\"\nargv \
         = [\"pwd\"]\n";
    let host_tool = FnTool::new("hosts", "Another.", |()| async { Ok::<_, String>("x") });
    let model = FnModel(|_| async { Ok(says("x")) });
    let kernel = Kernel::builder()
        .model("m", model)
        .tool(host_tool)
        .build()
        .await
        .unwrap();
    let refused = |section: String| {
        let text = format!("[model]\nname = \"m\"\nprovider = \"scripted\"\n{section}");
        kernel
            .parse(text.clone())
            .map(drop)
            .expect_err(&text)
            .to_string()
    };
    for tool in syscall::names() {
        for alias in syscall::names()
            .chain(["mine", "hosts"])
            .filter(|alias| *alias != tool)
        {
            let enabled = format!(
                "[tools]\nenabled = [{{ name = \"{tool}\", alias = \"{alias}\" }}]\n{command}"
            );
            let errors = refused(enabled);
            assert!(
                errors.contains(&format!("the alias `{alias}` is the name of another tool")),
                "{errors}"
            );
        }
        let errors = refused(command.replace("mine", tool));
        assert!(
            errors.contains(&format!("`{tool}` is the name of a built-in tool")),
            "{errors}"
        );
    }
    let errors = refused(command.replace("mine", "hosts"));
    assert!(
        errors.contains("`hosts` is the name of a tool of the host"),
        "{errors}"
    );
    let two = "[tools]\nenabled = [{ name = \"fork\", alias = \"x\" }, { name = \"read_fd\", alias \
         = \"x\" }]\n";
    assert!(refused(two.to_owned()).contains("two tools have the alias `x`"));
}

#[tokio::test]
async fn a_tool_of_the_host_cannot_take_the_name_of_one_of_the_kernel() {
    for name in syscall::names() {
        let tool = FnTool::new(name, "Another.", |()| async { Ok::<_, String>("x") });
        let refused = Kernel::builder().tool(tool).build().await;
        assert!(
            matches!(refused, Err(KernelError::Name(NameError::ReservedTool(taken))) if taken == name)
        );
    }
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// A kernel with tools of the host that need each access.
fn with_host_tools(requests: &Requests) -> KernelBuilder {
    let tool = |name| {
        FnTool::new(
            name,
            "Gives its text back.",
            |Text { text }: Text| async move { Ok::<_, String>(text) },
        )
    };
    let model = requests.record(FnModel(|_| async { Ok(says("x")) }));
    let builder = Kernel::builder()
        .model("m", model)
        .tool(tool("echo").access(Access::Read));
    builder
        .tool(tool("lines"))
        .tool(tool("rule").access(Access::Admin))
}

#[tokio::test]
async fn access_decides_which_tools_of_the_host_a_process_may_call() {
    let kernel = with_host_tools(&Requests::default()).build().await.unwrap();
    let rest = "[tools]\nenabled = [\"echo\", \"lines\", \"rule\"]\n";
    for (allowed, access) in (1..).zip(LEVELS) {
        let start = kernel
            .start(program(&kernel, rest))
            .without_input()
            .session()
            .access(access);
        let process = start.await.unwrap();
        for (at, tool) in (0..).zip(["echo", "lines", "rule"]) {
            let answer = within(process.call(tool, r#"{"text": "x"}"#))
                .await
                .unwrap();
            assert_eq!(
                !answer.is_error,
                at < allowed,
                "{tool} with {access:?}: {answer:?}"
            );
            assert_eq!(
                answer.text.contains("Access denied"),
                at >= allowed,
                "{tool} with {access:?}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_alias_hides_the_name_of_the_tool_and_keeps_what_was_said_with_it() {
    let requests = Requests::default();
    let kernel = with_host_tools(&requests).build().await.unwrap();
    let rest = r#"
        [tools]
        enabled = [
            { name = "echo", alias = "say", description = "Says it.", access = "admin" },
            { name = "read_fd", alias = "look" },
            { name = "where", alias = "place", description = "Tells the place.", access = "read" },
        ]
        [[tools.command]]
        name = "where"
        description = "Prints the folder."
        argv = ["pwd"]
    "#;
    let process = kernel
        .start(program(&kernel, rest))
        .input("go")
        .await
        .unwrap();
    within(process.wait()).await.unwrap();
    let tools = requests.all()[0].tools.clone();
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["say", "look", "place"]);
    assert_eq!(
        (&*tools[0].description, &*tools[2].description),
        ("Says it.", "Tells the place.")
    );
    let start = kernel
        .start(program(&kernel, rest))
        .without_input()
        .session()
        .access(Access::Write);
    let process = start.await.unwrap();
    for hidden in ["echo", "read_fd", "where"] {
        let answer = within(process.call(hidden, "{}")).await.unwrap();
        assert!(
            answer
                .text
                .contains(&format!("There is no tool '{hidden}'")),
            "{answer:?}"
        );
    }
    let answer = within(process.call("say", r#"{"text": "x"}"#))
        .await
        .unwrap();
    assert!(
        answer.text.contains("'say' needs admin access"),
        "{answer:?}"
    );
    let answer = within(process.call("place", "{}")).await.unwrap();
    assert!(
        answer.text.contains("without a host"),
        "it is permitted, and there is no host: {answer:?}"
    );
}
