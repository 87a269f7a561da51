//! Tools of servers: which of them a process is given and how they are called, and that it keeps
//! them as they were at its birth.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, Completion, Effect, HostContext, HostRequest, HostTool, Image, Input, Preloads, Signal,
    State, Work, add_mcp_tools, decide, evolve, initial_image, tools_of_new_process,
};
use dormouse_kernel::program::{Program, compile};
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::id::Pid;
use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, StopReason, Usage};
use dormouse_proto::process::Priority;
use dormouse_proto::record::codec;
use dormouse_proto::record::{ContentRef, Lifetime, Phase};
use dormouse_proto::server::OfferedTool;
use dormouse_proto::tool::{Access, ToolOutput, ToolPolicy, ToolSpec};

const HEAD: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";

fn program(rest: &str) -> Program {
    let text = format!("{HEAD}{rest}");
    let compiled = compile(
        Path::new("p.toml"),
        &mut |_| Ok(Bytes::from(text.clone())),
        &["grep"],
    );
    compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program
}

fn offer(server: &str, name: &str, access: Access) -> OfferedTool {
    let schema =
        r#"{"type":"object","properties":{"q":{"type":"string","description":"its own"}}}"#;
    let (description, policy) = (
        "as the server says".into(),
        ToolPolicy {
            access,
            ..ToolPolicy::default()
        },
    );
    OfferedTool {
        server: server.into(),
        name: name.into(),
        description,
        schema: schema.into(),
        policy,
    }
}

fn image(program: &Program, around: &HostContext) -> Image {
    let (said, preloads) = ("go".into(), &Preloads::default());
    let (lifetime, priority) = (Lifetime::Task, Priority::Normal);
    let birth = Birth {
        access: Access::Write,
        depth: 0,
        lifetime,
        priority,
        preloads,
        input: Some(&said),
    };
    initial_image(program, around, birth, 0)
}

fn given(program: &Program, offers: &[OfferedTool]) -> Image {
    let around = HostContext::new(&TOOL_SET);
    let mut image = image(program, &around);
    add_mcp_tools(&mut image, program, offers).unwrap();
    image
}

fn names(image: &Image) -> Vec<&str> {
    image.tools.iter().map(|tool| &*tool.name).collect()
}

/// The effects of a process whose model calls `tool`.
fn calling(state: State, tool: &str) -> (State, Vec<Effect>) {
    calling_with(state, tool, "{}")
}

fn calling_with(mut state: State, tool: &str, args: &str) -> (State, Vec<Effect>) {
    let mut feed = |input| {
        let decision = decide(&state, input, 0).read_all(0);
        state = decision.state;
        decision.effects
    };
    let effects = feed(Input::Signal(Signal::Resume));
    let call = effects.iter().find_map(|effect| match effect {
        Effect::StartWork {
            call,
            work: Work::Model { .. },
        } => Some(*call),
        _ => None,
    });
    let blocks = vec![Block::ToolUse {
        id: "u".into(),
        name: tool.into(),
        args: args.into(),
        raw: None,
    }];
    let reply = Reply {
        blocks,
        stop: StopReason::ToolUse,
        usage: Usage::default(),
    };
    let effects = feed(Input::Completed {
        call: call.expect("it asks its model"),
        result: Completion::Model(Ok(reply)),
    });
    (state, effects)
}

#[test]
fn all_or_some_tools_of_a_server_are_given_under_names_of_their_own() {
    let offers = [
        offer("s", "read", Access::Read),
        offer("s", "a.b/c", Access::Write),
        offer("s", "a b c", Access::Write),
        offer("s", &"x".repeat(80), Access::Write),
        offer("s", &format!("{}2", "x".repeat(79)), Access::Write),
        offer("other", "read", Access::Read),
    ];
    let long = format!("s__{}", "x".repeat(61));
    let longer = format!("s__{}_2", "x".repeat(59));
    let prefix = "p".repeat(32);
    let (prefixed, chosen) = (
        format!("{prefix}read"),
        format!("s = {{ tools = [\"read\"], prefix = \"{prefix}\" }}"),
    );
    let cases: [(&str, Vec<&str>); 6] = [
        (
            "s = { tools = [\"read\"], prefix = \"\" }",
            vec!["read_fd", "read"],
        ),
        (&chosen, vec!["read_fd", &prefixed]),
        (
            "s = \"all\"",
            vec![
                "read_fd",
                "s__read",
                "s__a_b_c",
                "s__a_b_c_2",
                &long,
                &longer,
            ],
        ),
        ("s = [\"read\"]", vec!["read_fd", "s__read"]),
        (
            "s = [\"a b c\", { name = \"read\", alias = \"s__a_b_c\" }]",
            vec!["read_fd", "s__a_b_c_2", "s__a_b_c"],
        ),
        ("s = []", vec!["read_fd"]),
    ];
    for (chosen, expected) in cases {
        let text = format!(
            "[tools]\nenabled = [\"read_fd\"]\n[tools.mcp]\n{chosen}\n[mcp.servers.s]\ncommand = \
             \"s\"\n"
        );
        assert_eq!(
            names(&given(&program(&text), &offers)),
            expected,
            "{chosen}"
        );
    }
}

#[test]
fn a_name_is_changed_only_where_it_collides_with_what_is_served() {
    let text = "[tools]\nenabled = [\"read_fd\"]\n[tools.mcp]\na = { tools = \"all\", prefix = \"\" }\nb = { \
                tools = \"all\", prefix = \"\" }\n[mcp.servers.a]\ncommand = \"a\"\n[mcp.servers.b]\ncommand \
                = \"b\"\n";
    let offered = |offers: &[(&str, &str)]| -> Vec<String> {
        let offers: Vec<_> = offers
            .iter()
            .map(|(server, tool)| offer(server, tool, Access::Read))
            .collect();
        let image = given(&program(text), &offers);
        names(&image).into_iter().map(str::to_owned).collect()
    };
    assert_eq!(
        offered(&[("a", "send_message"), ("a", "read_fd"), ("b", "fork")]),
        ["read_fd", "send_message", "a__read_fd", "fork"],
        "a tool of the kernel that this program does not have takes no name"
    );
    assert_eq!(
        offered(&[("b", "find"), ("a", "one"), ("a", "find")]),
        ["read_fd", "one", "a__find", "b__find"],
        "neither order nor server decides whose the name is"
    );
}

#[test]
fn a_tool_keeps_its_form_under_the_name_that_it_gets_and_takes_none_of_the_provider() {
    let text = "[model]\nname = \"m\"\nprovider = \"anthropic\"\n[[tools.server]]\ntype = \
                \"web_search_1\"\nname = \"web_search\"\n[mcp.servers.s]\ncommand = \"s\"\n[tools.mcp]\ns = \
                { tools = [{ name = \"a.b\", strict = true }, { name = \"web_search\", strict = true }, { \
                name = \"look\", alias = \"see\", strict = true }, \"plain\"], prefix = \"\" }\n";
    let mut read = |_: &Path| Ok(Bytes::from(text));
    let program = compile(Path::new("p.toml"), &mut read, &[])
        .unwrap()
        .program;
    let offers = ["a.b", "web_search", "look", "plain"].map(|name| offer("s", name, Access::Read));
    let image = given(&program, &offers);
    assert_eq!(names(&image), ["a_b", "s__web_search", "see", "plain"]);
    let around = Arc::new(HostContext::new(&TOOL_SET));
    let state = State::from_image(Pid(1), program, around, image).unwrap();
    let sent = state.request().provider_tools;
    let strict: Vec<_> = sent.forms.iter().filter(|(_, form)| form.strict).collect();
    let strict: Vec<_> = strict.into_iter().map(|(name, _)| &**name).collect();
    assert_eq!(strict, ["a_b", "s__web_search", "see"]);
}

#[test]
fn a_program_says_of_a_tool_what_it_likes() {
    let program = program(
        "[tools.mcp]\ns = [{ name = \"t\", description = \"Ours.\", access = \"admin\", \
         param_descriptions = { q = \"Our q.\" } }]\n[mcp.servers.s]\nurl = \"http://s\"\n",
    );
    let image = given(&program, &[offer("s", "t", Access::Read)]);
    let ([tool], [external]) = (&*image.tools, &*image.external) else {
        panic!("{:?}", image.tools)
    };
    assert_eq!(&*tool.description, "Ours.");
    assert!(
        tool.schema.contains("\"Our q.\"") && !tool.schema.contains("its own"),
        "{}",
        tool.schema
    );
    let place = (
        external.server.as_deref(),
        &*external.name,
        &*external.name_for_model,
        external.policy.access,
    );
    assert_eq!(place, (Some("s"), "t", "s__t", Access::Admin));
    let state = State::from_image(
        Pid(1),
        program,
        Arc::new(HostContext::new(&TOOL_SET)),
        image,
    )
    .unwrap();
    let (state, effects) = calling(state, "s__t");
    assert!(
        !effects.iter().any(|effect| matches!(
            effect,
            Effect::StartWork {
                work: Work::Tool { .. },
                ..
            }
        )),
        "{effects:?}"
    );
    let Block::ToolResult {
        text,
        is_error: true,
        ..
    } = &state.messages().back().unwrap().blocks[0]
    else {
        panic!()
    };
    assert!(text.contains("needs admin access"), "{text}");
}

#[test]
fn a_tool_that_was_chosen_and_is_not_offered_is_named() {
    let program = |optional: &str| {
        program(&format!(
            "[tools.mcp]\ns = [\"gone\", \"here\"]\n[mcp.servers.s]\ncommand = \"s\"\n{optional}"
        ))
    };
    let offers = [offer("s", "here", Access::Read)];
    let strict = program("");
    let around = HostContext::new(&TOOL_SET);
    let error = add_mcp_tools(&mut image(&strict, &around), &strict, &offers).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the tool server `s` offers no tool `gone`. It offers: here"
    );
    assert_eq!(
        names(&given(&program("optional = true\n"), &offers)),
        ["s__here"]
    );
    assert_eq!(names(&given(&program("optional = true\n"), &[])), [""; 0]);
}

#[test]
fn the_host_replaces_the_tools_of_a_process_that_has_asked_no_model() {
    let program = program("[tools.mcp]\ns = \"all\"\n[mcp.servers.s]\ncommand = \"s\"\n");
    let host = Arc::new(HostContext::new(&TOOL_SET));
    let old = offer("s", "old", Access::Read);
    let mut image = image(&program, &host);
    add_mcp_tools(&mut image, &program, std::slice::from_ref(&old)).unwrap();
    let offers = [old, offer("s", "new", Access::Read)];
    let (tools, external) = tools_of_new_process(&program, &host, &offers).unwrap();
    let born = State::from_image(Pid(1), program, host, image).unwrap();
    let asked = calling(born.clone(), "s__old").0;
    for (before, is_refused, expected) in [
        (born, false, vec!["s__old", "s__new"]),
        (asked, true, vec!["s__old"]),
    ] {
        let request = Input::Host {
            request_id: "r".into(),
            request: HostRequest::ReplaceTools {
                tools: tools.clone(),
                external: external.clone(),
            },
        };
        let decision = decide(&before, request, 0).read_all(0);
        let answered = decision.effects.iter().any(|effect| {
            matches!(effect, Effect::AnswerHost { answer, .. } if answer.is_error == is_refused)
        });
        assert!(answered, "{:?}", decision.effects);
        let mut replayed = before;
        decision
            .facts
            .iter()
            .for_each(|fact| evolve(&mut replayed, fact));
        assert_eq!(replayed.image(), decision.state.image(), "DUR-2");
        assert_eq!(names(&replayed.image()), expected, "HIST-1");
    }
}

#[test]
fn a_process_keeps_the_tools_that_it_was_born_with() {
    let around = |description: &str, access| {
        let spec = ToolSpec {
            name: "grep".into(),
            description: description.into(),
            schema: "{}".into(),
        };
        let policy = ToolPolicy {
            access,
            idempotent: access == Access::Read,
            ..ToolPolicy::default()
        };
        let tools = BTreeMap::from([("grep".into(), HostTool { spec, policy })]);
        Arc::new(HostContext {
            tools,
            ..HostContext::new(&TOOL_SET)
        })
    };
    let text = "[tools]\nenabled = [{ name = \"fork\", access = \"write\" }, \
         \"grep\"]\n[tools.mcp]\ns = \"all\"\n[mcp.servers.s]\ncommand = \"s\"\n";
    let first = program(text);
    let host = around("finds", Access::Write);
    let mut image = image(&first, &host);
    add_mcp_tools(&mut image, &first, &[offer("s", "t", Access::Write)]).unwrap();
    let born = State::from_image(Pid(1), first, around("finds", Access::Write), image).unwrap();
    // Another life of the kernel: the host says other things of its tool, and allows other things.
    let bytes = codec::encode(
        &born
            .image()
            .try_map(&mut |content| Ok::<_, ()>(content.reference()))
            .unwrap(),
    )
    .unwrap();
    let stored = codec::decode::<dormouse_proto::record::Image<ContentRef>>(&bytes).unwrap();
    let image = stored
        .try_map(&mut |_| Ok::<_, ()>(born.image().bundle))
        .unwrap();
    let again = State::from_image(
        Pid(1),
        program(text),
        around("searches", Access::Admin),
        image,
    )
    .unwrap();
    assert_eq!(again.request().tools, born.request().tools, "HIST-1");
    for (tool, server) in [("grep", None), ("s__t", Some("s"))] {
        let (state, effects) = calling(again.clone(), tool);
        let called = effects.iter().find_map(|effect| match effect {
            Effect::StartWork {
                work: Work::Tool { tool, .. },
                ..
            } => Some(tool.clone()),
            _ => None,
        });
        let called = called.unwrap_or_else(|| panic!("{tool} is called: {effects:?}"));
        assert_eq!(
            (called.server.as_deref(), called.policy),
            (server, ToolPolicy::default())
        );
        let Phase::Acting { pending_calls, .. } = state.phase() else {
            panic!()
        };
        let done = Input::Completed {
            call: pending_calls[0].call,
            result: Completion::Tool(ToolOutput::ok("x")),
        };
        assert!(
            decide(&state, done, 0)
                .read_all(0)
                .effects
                .iter()
                .any(|effect| matches!(
                    effect,
                    Effect::StartWork {
                        work: Work::Model { .. },
                        ..
                    }
                ))
        );
    }
    let (_, effects) = calling_with(again.clone(), "fork", r#"{"prompts": ["a"]}"#);
    let Some(Effect::StartChildren { children, .. }) = effects.last() else {
        panic!("{effects:?}")
    };
    let image = &children[0].image;
    assert_eq!(
        (&image.tools, &image.external),
        (&again.image().tools, &again.image().external),
        "FORK-2"
    );
}
