//! Budgets, one process at a time: what is reserved and comes back, what each limit ends, what a
//! model is told before.

use crate::budget_run::{FORK_3, Run, SPAWN_ME, SPAWN_SMALL, output, tokens};
use crate::budget_support::{around, process, program};
use dormouse_kernel::budget::Account;
use dormouse_kernel::process::{
    Birth, ChildEvent, Completion, Effect, Fact, Input, Preloads, Report, Signal, State, Work,
    decide, evolve, initial_image,
};
use dormouse_proto::budget::{Amount, Budget, Change};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::{Block, Role};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, StopReason, Usage};
use dormouse_proto::process::{Exit, ExitStatus, Origin, Priority};
use dormouse_proto::record::{Lifetime, Phase, TurnFact};
use dormouse_proto::tool::Access;
use serde_json::Value;

const TOKENS: &str =
    "[budget]\noutput_tokens = 101\nprocesses = 9\ndepth = 2\nwall_time = \"10s\"\n";

/// A process whose model has just forked three children, and the call.
fn forked(lifetime: Lifetime) -> (Run, CallId) {
    let mut run = Run::new(lifetime, TOKENS);
    run.reply(output(1), &[FORK_3]);
    let (call, _) = run
        .state
        .budget()
        .shares()
        .map(|(place, _)| place)
        .next()
        .expect("shares are reserved");
    (run, call)
}

#[test]
fn a_share_is_reserved_before_a_child_is_started_and_what_is_left_of_it_comes_back() {
    let (mut run, call) = forked(Lifetime::Task);
    let names: Vec<_> = run.news.iter().map(Fact::name).collect();
    assert_eq!(
        names,
        [
            "model_replied",
            "budget_reserved",
            "tool_called",
            "budget_clock"
        ],
        "it rests until they have ended"
    );
    let share = Budget {
        output_tokens: Some(25),
        processes: Some(2),
        depth: Some(1),
        wall_time_ms: Some(10_000),
        ..Budget::default()
    };
    let children = run.children();
    assert_eq!(children.len(), 3);
    assert!(
        children
            .iter()
            .all(|child| child.image.budget.limits == share),
        "{:?}",
        children[0].image.budget
    );
    let account = run.state.budget();
    assert_eq!(
        (
            account.remaining(Amount::OutputTokens),
            account.remaining(Amount::Processes)
        ),
        (Some(25), Some(2))
    );
    run.end_child(call, 1, Some(output(10)));
    let account = run.state.budget();
    assert_eq!(
        (
            account.remaining(Amount::OutputTokens),
            account.remaining(Amount::Processes)
        ),
        (Some(40), Some(4))
    );
    assert_eq!(
        (
            account.descendant_usage(),
            account.reserved(Amount::OutputTokens)
        ),
        (output(10), 50)
    );
    let before = run.state.clone();
    run.end_child(call, 1, Some(output(99)));
    assert_eq!(
        run.state, before,
        "an end that is reported again changes nothing"
    );
    run.end_child(call, 0, Some(output(30)));
    assert_eq!(
        run.state.budget().remaining(Amount::OutputTokens),
        Some(101 - 1 - 10 - 30 - 25),
        "a child may overshoot"
    );
    run.end_child(call, 2, Some(output(0)));
    run.reply(output(2), &[]);
    assert_eq!(
        tokens(
            run.state
                .exit()
                .and_then(|exit| exit.spent.as_deref().copied())
        ),
        Some(43),
        "its end tells of the whole subtree"
    );
}

#[test]
fn children_of_one_reply_share_alike_whichever_call_makes_them_and_those_that_cannot_multiply_are_one_process()
 {
    let mut run = Run::new(
        Lifetime::Task,
        "[budget]\noutput_tokens = 60\nprocesses = 60\n",
    );
    run.reply(output(0), &[FORK_3, SPAWN_SMALL, SPAWN_ME]);
    let shares: Vec<_> = run
        .state
        .budget()
        .shares()
        .map(|(_, share)| (share.output_tokens, share.processes))
        .collect();
    // Sixty tokens for six: three forks, two spawns, and the process itself; the small program asks
    // for nine of them.
    let (forked, small, me) = (
        (Some(10), Some(9)),
        (Some(9), Some(1)),
        (Some(10), Some(15)),
    );
    assert_eq!(shares, [forked, forked, forked, small, me]);
}

#[test]
fn children_at_the_last_level_of_depth_are_one_process_each_and_those_above_it_are_more() {
    for (depth, processes) in [(7, 2), (8, 1)] {
        let mut image = process(program("[budget]\nprocesses = 9\n"), Lifetime::Task).image();
        image.depth = depth;
        let program = program_of(&image);
        assert_eq!(program.limits().max_depth, 9);
        let mut run = Run::of(State::from_image(Pid(1), program, around(0), image).unwrap());
        run.reply(output(0), &[FORK_3]);
        let shares: Vec<_> = run
            .state
            .budget()
            .shares()
            .map(|(_, share)| share.processes)
            .collect();
        assert_eq!(
            shares,
            [Some(processes); 3],
            "children at level {}",
            depth + 1
        );
    }
}

#[test]
fn a_share_comes_back_after_its_call_was_given_up() {
    let (mut run, call) = forked(Lifetime::Session);
    run.feed(Input::Signal(Signal::Interrupt));
    assert_eq!(
        run.state.budget().remaining(Amount::OutputTokens),
        Some(25),
        "the children may still be at work"
    );
    assert_eq!(
        run.finds(),
        [(call, 0), (call, 1), (call, 2)],
        "what became of them is asked"
    );
    run.end_child(call, 0, Some(output(5)));
    run.feed(Input::Child {
        call,
        event: ChildEvent::Absent { index: 1 },
    });
    assert_eq!(
        run.changes(),
        [Change::Returned {
            call,
            index: 1,
            spent: Some(Usage::default())
        }]
    );
    run.end_child(call, 2, None);
    assert_eq!(
        run.state.budget().descendant_usage(),
        output(5 + 25),
        "of one that nobody knows of, the whole share is used"
    );
    assert_eq!(run.state.budget().shares().count(), 0);
    run.end_child(call, 0, Some(output(50)));
    assert!(run.news.is_empty(), "CALL-1");
}

#[test]
fn after_a_restart_it_asks_for_children_that_nobody_waits_for_and_keeps_the_shares_of_the_others() {
    let (mut run, call) = forked(Lifetime::Session);
    run.feed(Input::Signal(Signal::Resume));
    assert_eq!(run.finds(), [], "the call waits for them");
    assert_eq!(
        (run.children().len(), run.changes().len()),
        (3, 0),
        "they are asked for under the same shares"
    );
    run.feed(Input::Signal(Signal::Interrupt));
    run.feed(Input::Signal(Signal::Resume));
    assert_eq!(run.finds(), [(call, 0), (call, 1), (call, 2)]);
    run.feed(Input::Child {
        call,
        event: ChildEvent::Absent { index: 2 },
    });
    assert_eq!(run.state.budget().remaining(Amount::OutputTokens), Some(50));
}

#[test]
fn a_spawn_that_comes_to_nothing_gives_its_share_back() {
    let mut run = Run::new(Lifetime::Task, TOKENS);
    run.reply(
        output(0),
        &[(
            "spawn",
            r#"{"program_name": "me", "query": "q", "additional_preload_files": ["x"]}"#,
        )],
    );
    let Some(Effect::StartWork {
        call,
        work: Work::Fetch(pending),
    }) = run.effects.last().cloned()
    else {
        panic!("{:?}", run.effects)
    };
    assert_eq!(run.state.budget().shares().count(), 1);
    let result = Err(dormouse_kernel::process::FetchError::Internal(
        "no".to_owned(),
    ));
    run.feed(Input::Completed {
        call,
        result: Completion::Fetched { pending, result },
    });
    assert_eq!(
        run.state.budget().remaining(Amount::OutputTokens),
        Some(101)
    );
}

#[test]
fn a_process_that_ends_with_living_children_counts_their_shares_as_used() {
    let (mut run, _) = forked(Lifetime::Session);
    run.feed(Input::Signal(Signal::Kill));
    assert_eq!(
        tokens(
            run.state
                .exit()
                .and_then(|exit| exit.spent.as_deref().copied())
        ),
        Some(1 + 3 * 25)
    );
    assert_eq!(
        tokens(Some(run.state.budget().spent())),
        Some(1 + 3 * 25),
        "also if a message opens it again"
    );
}

#[test]
fn a_call_that_not_even_the_least_is_left_for_is_refused_and_says_why() {
    let cases = [
        (
            "processes = 3\n",
            FORK_3,
            "budget of processes 2 is left of 3 (budget.processes). Wait until children have ended",
        ),
        (
            "output_tokens = 4\n",
            FORK_3,
            "budget of output_tokens 3 is left of 4 (budget.output_tokens)",
        ),
        (
            "cost = \"0.000000002\"\n",
            SPAWN_ME,
            "budget of cost 0.000000001 is left of 0.000000002 (budget.cost)",
        ),
    ];
    for (budget, calls, expected) in cases {
        let mut run = Run::new(Lifetime::Task, &format!("[budget]\n{budget}"));
        run.reply(output(1), &[calls]);
        assert!(run.answers()[0].contains(expected), "{:?}", run.answers());
        assert!(run.children().is_empty() && run.changes().is_empty() && run.request().is_some());
    }
    let mut state = process(program(TOKENS), Lifetime::Task).image();
    state.budget.limits.depth = Some(0);
    let around = around(0);
    let mut run = Run::of(State::from_image(Pid(1), program_of(&state), around, state).unwrap());
    run.reply(output(1), &[SPAWN_ME]);
    assert!(
        run.answers()[0].contains("(budget.depth). Do the work in this process."),
        "{:?}",
        run.answers()
    );
}

/// The program that an image was made of, compiled anew.
fn program_of(image: &dormouse_kernel::process::Image) -> dormouse_kernel::program::Program {
    let bytes = image
        .bundle
        .unlimited_reader()
        .bytes()
        .expect("it is in memory");
    let bundle =
        dormouse_kernel::program::Bundle::from_bytes(&bytes).expect("an image holds its bundle");
    dormouse_kernel::program::compile_bundle(&bundle, &["grep"])
        .expect("it compiled before")
        .program
}

#[test]
fn at_each_limit_a_process_ends_cleanly_and_says_which_it_was() {
    let cached = Usage {
        input_tokens: 3,
        cache_read_tokens: 4,
        cache_write_tokens: 3,
        ..Usage::default()
    };
    let cases = [
        (
            "input_tokens = 10\n",
            cached,
            "input_tokens is used up: 10 of 10",
        ),
        (
            "output_tokens = 10\n",
            output(12),
            "output_tokens is used up: 12 of 10",
        ),
        (
            "cost = \"0.00000001\"\n",
            output(10),
            "cost is used up: 0.00000001 of 0.00000001",
        ),
        (
            "resident_bytes = 30\n",
            output(1),
            "resident_bytes is used up: 34 of 30",
        ),
    ];
    for lifetime in [Lifetime::Task, Lifetime::Session] {
        for (budget, usage, expected) in cases {
            let mut run = Run::new(lifetime, &format!("[budget]\n{budget}"));
            run.grep(usage, &"x".repeat(34));
            let (status, message) = run
                .exit()
                .unwrap_or_else(|| panic!("{budget}: {:?}", run.state.phase()));
            assert_eq!(status, ExitStatus::BudgetExhausted);
            assert!(
                message.contains(expected) && message.contains("(budget."),
                "{message}"
            );
            assert!(
                matches!(
                    run.effects.last(),
                    Some(Effect::Report(Report::Exit { .. }))
                ) && run.request().is_none()
            );
            assert_eq!(
                run.state.messages().last().map(|last| last.role),
                Some(Role::User),
                "the tool is answered"
            );
        }
    }
}

#[test]
fn what_is_done_at_the_limit_is_done() {
    let mut run = Run::new(Lifetime::Task, "[budget]\noutput_tokens = 10\n");
    run.reply(output(10), &[]);
    assert_eq!(run.exit().map(|(status, _)| status), Some(ExitStatus::Done));
}

#[test]
fn when_its_time_is_up_a_process_ends_in_the_middle_of_a_call_with_a_valid_history() {
    let mut run = Run::new(Lifetime::Session, TOKENS);
    assert!(
        matches!(run.effects.last(), Some(Effect::WakeAt { at_ms: 10_000 })),
        "{:?}",
        run.effects
    );
    run.reply(output(1), &[("grep", "{}"), FORK_3]);
    run.feed(Input::TimeUp { at_ms: 9_999 });
    assert_eq!(run.exit(), None, "an alarm for another time");
    run.feed(Input::TimeUp { at_ms: 10_000 });
    let (status, message) = run.exit().expect("it ended");
    assert_eq!(status, ExitStatus::BudgetExhausted);
    assert!(
        message.contains("wall_time is used up: 10s of 10s"),
        "{message}"
    );
    assert_eq!(run.answers().len(), 2, "each call is answered");
    assert!(
        run.effects
            .iter()
            .any(|effect| matches!(effect, Effect::Abandon { calls } if calls.len() == 2))
    );
    let mut late = Run::new(Lifetime::Task, TOKENS);
    late.now_ms = 10_000;
    late.feed(Input::Signal(Signal::Resume));
    assert_eq!(late.exit(), None, "the time in its journal does not count");
    assert_eq!(late.state.next_wake_ms(), Some(20_000));
}

#[test]
fn near_a_limit_the_model_is_warned_once_in_a_message_that_it_has_not_seen() {
    let mut run = Run::new(
        Lifetime::Task,
        "[budget]\noutput_tokens = 100\ninput_tokens = 1000\n",
    );
    run.grep(output(79), "a");
    assert_eq!(run.changes(), []);
    let sent = run.request().expect("it asks").messages;
    run.grep(output(1), "b");
    let request = run.request().expect("it asks");
    assert!(request.messages.starts_with(&sent), "HIST-1");
    let Some(Block::Text { text, .. }) =
        request.messages.last().and_then(|last| last.blocks.last())
    else {
        panic!("{:?}", request.messages.last())
    };
    let head = "<budget_warning amount=\"output_tokens\" used=\"80\" limit=\"100\">\n  \
         <message>Your budget of output_tokens";
    assert!(text.starts_with(head), "{text}");
    run.grep(output(5), "c");
    assert_eq!(run.changes(), [], "once");
    assert!(
        run.request()
            .expect("it asks")
            .messages
            .starts_with(&request.messages),
        "HIST-1"
    );
}

#[test]
fn a_message_that_was_sent_is_not_added_to() {
    let mut run = Run::new(Lifetime::Task, "[budget]\noutput_tokens = 100\n");
    let sent = run.request().expect("it asks").messages;
    let Phase::Thinking { call } = *run.state.phase() else {
        panic!("it asks")
    };
    let reply = Reply {
        blocks: Vec::new(),
        stop: StopReason::Pause,
        usage: output(90),
    };
    run.feed(Input::Completed {
        call,
        result: Completion::Model(Ok(reply)),
    });
    assert_eq!(
        run.request().expect("it asks again").messages,
        sent,
        "HIST-1"
    );
}

#[test]
fn a_reply_may_be_no_longer_than_what_is_left() {
    let mut run = Run::new(Lifetime::Task, "[budget]\noutput_tokens = 70\n");
    let asked = |run: &Run| run.request().expect("it asks").parameters["max_tokens"].as_u64();
    assert_eq!(asked(&run), Some(50), "as the program says");
    run.grep(output(30), "a");
    assert_eq!(asked(&run), Some(40));
}

#[test]
fn a_reply_is_never_shorter_than_what_its_model_thinks_with() {
    let thinking = "[parameters.thinking]\ntype = \"enabled\"\nbudget_tokens = 30\n";
    let mut run = Run::new(
        Lifetime::Task,
        &format!("{thinking}[budget]\noutput_tokens = 70\n"),
    );
    run.grep(output(60), "a");
    let request = run.request().expect("it asks");
    assert_eq!(
        request.parameters["max_tokens"], 31,
        "10 are left, and a shorter one would be refused"
    );
    run.grep(output(11), "a");
    assert_eq!(
        run.exit().map(|(status, _)| status),
        Some(ExitStatus::BudgetExhausted)
    );
}

#[test]
fn what_a_model_thinks_with_is_found_under_the_name_of_each_provider() {
    let cases = [
        ("[parameters.thinking]\nbudget_tokens = 30\n", "/max_tokens"),
        ("[parameters.reasoning]\nmax_tokens = 30\n", "/max_tokens"),
        (
            "[parameters.generationConfig]\nmaxOutputTokens = 50\n\
             [parameters.generationConfig.thinkingConfig]\nthinkingBudget = 30\n",
            "/generationConfig/maxOutputTokens",
        ),
    ];
    for (thinking, limit) in cases {
        let budget = "[budget]\noutput_tokens = 70\n";
        let mut run = Run::new(Lifetime::Task, &format!("{thinking}{budget}"));
        run.grep(output(60), "a");
        let request = run.request().expect("it asks");
        let parameters = Value::Object((*request.parameters).clone());
        assert_eq!(
            parameters.pointer(limit),
            Some(&Value::from(31)),
            "{parameters}"
        );
    }
}

#[test]
fn where_all_that_is_left_is_reserved_it_waits_until_some_of_it_comes_back() {
    let mut run = Run::new(Lifetime::Task, "[budget]\noutput_tokens = 12\n");
    run.reply(output(1), &[SPAWN_SMALL]);
    let call = run
        .state
        .budget()
        .shares()
        .next()
        .map(|((call, _), _)| call)
        .expect("a share is reserved");
    run.feed(Input::Child {
        call,
        event: ChildEvent::Started { child: Pid(2) },
    });
    run.grep(output(2), "a");
    assert_eq!(run.state.budget().remaining(Amount::OutputTokens), Some(0));
    assert!(
        run.request().is_none() && run.exit().is_none(),
        "{:?}",
        run.state.phase()
    );
    run.feed(Input::Signal(Signal::Resume));
    assert!(
        run.request().is_none() && run.exit().is_none(),
        "after a restart, too"
    );
    run.end_child(call, 0, Some(output(4)));
    assert!(run.request().is_some(), "{:?}", run.state.phase());
    run.reply(output(5), &[]);
    assert_eq!(
        run.exit().map(|(status, _)| status),
        Some(ExitStatus::BudgetExhausted),
        "12 are used, and word waits"
    );
}

#[test]
fn the_cost_of_a_call_stands_in_its_fact_whatever_the_price_is_later() {
    let mut run = Run::new(
        Lifetime::Session,
        "[prices.m]\ninput = 2\noutput = \"0.25\"\n",
    );
    run.reply(
        Usage {
            input_tokens: 3,
            output_tokens: 1,
            cache_read_tokens: 1,
            ..Usage::default()
        },
        &[],
    );
    assert_eq!(
        run.state.usage().cost_nanos,
        4 * 2_000 + 250,
        "the program's price, and not the host's"
    );
    let dear = process(
        program("[prices.m]\ninput = 99\noutput = 99\n"),
        Lifetime::Session,
    );
    let mut replayed = dear;
    run.facts
        .iter()
        .for_each(|fact| evolve(&mut replayed, fact));
    assert_eq!(replayed.usage(), run.state.usage(), "DUR-2");
}

#[test]
fn a_summary_that_fails_costs_what_it_costs_and_one_that_comes_too_late_does_so_once() {
    let mut run = Run::new(Lifetime::Session, "");
    run.grep(output(1), &"long ".repeat(9));
    let summarize = ("summarize_fd", r#"{"fd": "fd:1"}"#);
    run.reply(output(1), &[summarize, summarize]);
    let pending = run.effects.iter().filter_map(|effect| match effect {
        Effect::StartWork {
            call,
            work: Work::Summarize { pending, .. },
        } => Some((*call, pending.clone())),
        _ => None,
    });
    let pending: Vec<_> = pending.collect();
    let says_nothing = || {
        Ok(Reply {
            blocks: Vec::new(),
            stop: StopReason::EndTurn,
            usage: output(7),
        })
    };
    let answer = |run: &mut Run, at: usize| {
        let (call, pending) = pending[at].clone();
        run.feed(Input::Completed {
            call,
            result: Completion::Summarized {
                pending,
                result: says_nothing(),
            },
        });
    };
    answer(&mut run, 0);
    assert_eq!(run.state.usage().output_tokens, 9);
    run.feed(Input::Signal(Signal::Interrupt));
    // Another interrupt of another call forgets nothing.
    run.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "again".into(),
    });
    run.feed(Input::Signal(Signal::Interrupt));
    for _ in 0..2 {
        answer(&mut run, 1);
        assert_eq!(run.state.usage().output_tokens, 16, "once");
    }
    answer(&mut run, 0);
    assert_eq!(
        run.state.usage().output_tokens,
        16,
        "it was counted when it came"
    );
}

#[test]
fn no_summary_is_asked_for_beyond_a_limit() {
    let mut run = Run::new(Lifetime::Session, "[budget]\noutput_tokens = 10\n");
    run.grep(output(1), &"long ".repeat(9));
    run.reply(
        output(9),
        &[("summarize_fd", r#"{"fd": "fd:1"}"#), ("grep", "{}")],
    );
    assert!(
        !run.effects.iter().any(|effect| matches!(
            effect,
            Effect::StartWork {
                work: Work::Summarize { .. },
                ..
            }
        )),
        "{:?}",
        run.effects
    );
}

#[test]
fn a_restored_process_is_a_root_with_its_limits_what_it_used_and_all_of_its_time() {
    let (run, _) = forked(Lifetime::Session);
    let ledger = Account::as_root(run.state.budget().ledger(), 5_000);
    let account = Account::new(ledger, run.state.usage());
    assert_eq!(
        (
            account.remaining(Amount::OutputTokens),
            account.shares().count()
        ),
        (Some(100), 0)
    );
    assert_eq!(account.deadline_ms(), Some(15_000));
    let mut image = run.state.image();
    image.budget = account.ledger();
    let mut restored = Run::of(
        State::from_image(
            Pid(7),
            run.state.program().clone(),
            around(1_000_000),
            image,
        )
        .unwrap(),
    );
    assert_eq!(restored.children().len(), 3, "the fork is made again");
    assert_eq!(
        restored.state.budget().shares().count(),
        3,
        "and its shares are reserved"
    );
    restored.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "more".into(),
    });
}

#[test]
fn the_time_of_a_process_begins_with_its_birth() {
    let (program, around) = (program("[budget]\nwall_time = \"10s\"\n"), around(1));
    let (access, priority, preloads) = (Access::Admin, Priority::Normal, &Preloads::default());
    let birth = Birth {
        access,
        depth: 0,
        lifetime: Lifetime::Task,
        priority,
        preloads,
        input: None,
    };
    let account = Account::new(
        initial_image(&program, &around, birth, 20_000).budget,
        Usage::default(),
    );
    let used = |now_ms| account.nearly_reached_limits(now_ms).len();
    assert_eq!((used(20_000), used(28_000)), (0, 1), "8 s of 10 s");
}

#[test]
fn a_restored_process_is_warned_of_its_new_time_and_not_again_of_what_it_used() {
    let mut run = Run::new(
        Lifetime::Session,
        "[budget]\nwall_time = \"10s\"\noutput_tokens = 10\n",
    );
    run.now_ms = 8_000;
    run.grep(output(8), "x");
    assert_eq!(run.changes().len(), 2, "of both: {:?}", run.changes());
    let account = Account::new(
        Account::as_root(run.state.budget().ledger(), 20_000),
        run.state.usage(),
    );
    assert_eq!(account.nearly_reached_limits(20_000), []);
    let near: Vec<_> = account
        .nearly_reached_limits(28_000)
        .iter()
        .map(|near| near.amount)
        .collect();
    assert_eq!(near, [Amount::WallTime]);
}

#[test]
fn a_call_that_was_in_flight_is_not_made_again_beyond_the_limits() {
    let run = Run::new(Lifetime::Task, TOKENS);
    let Phase::Thinking { .. } = *run.state.phase() else {
        panic!("it asks")
    };
    for (output_tokens, is_asked) in [(0, true), (1_000_000, false)] {
        let mut image = run.state.image();
        image.usage.output_tokens = output_tokens;
        let state =
            State::from_image(Pid(1), run.state.program().clone(), around(1), image).unwrap();
        let decision = decide(&state, Input::Signal(Signal::Resume), 0);
        let asks = decision.effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::StartWork {
                    work: Work::Model { .. },
                    ..
                }
            )
        });
        assert_eq!(
            (asks, decision.state.exit().is_none()),
            (is_asked, is_asked)
        );
        let status = decision.state.exit().map(|exit| exit.status);
        assert_eq!(status, (!is_asked).then_some(ExitStatus::BudgetExhausted));
    }
}

#[test]
fn a_failure_of_the_model_costs_nothing_that_is_known() {
    let run = Run::new(Lifetime::Task, TOKENS);
    let Phase::Thinking { call } = *run.state.phase() else {
        panic!("it asks")
    };
    let result = Err(ModelError::new(ModelErrorKind::Malformed, "no"));
    let decision = decide(
        &run.state,
        Input::Completed {
            call,
            result: Completion::Model(result),
        },
        0,
    )
    .read_all(0);
    let exited = decision.facts.iter().find_map(|fact| match fact {
        Fact::Exited { exit } => Some(exit.clone()),
        _ => None,
    });
    let expected = Exit::new(ExitStatus::ModelFailed, exited.clone().unwrap().message)
        .with_usage(Usage::default());
    assert_eq!(exited, Some(expected));
}

#[test]
fn as_many_children_as_the_program_allows_may_run_in_the_background_and_each_may_have_its_own() {
    let mut run = Run::new(Lifetime::Session, "");
    for child in 0..99_u64 {
        run.reply(
            output(0),
            &[(
                "spawn",
                r#"{"program_name": "me", "query": "q", "wait": false}"#,
            )],
        );
        let call = run.children().first().map(|child| child.origin.clone());
        let Some(Origin::Spawned { call }) = call else {
            panic!("child {child}: {:?}", run.answers())
        };
        let processes = run
            .state
            .budget()
            .share(call, 0)
            .and_then(|share| share.processes);
        assert!(processes >= Some(99), "child {child}: {processes:?}");
        run.feed(Input::Child {
            call,
            event: ChildEvent::Started {
                child: Pid(2 + child),
            },
        });
    }
}

#[test]
fn one_restored_from_right_after_an_interrupt_of_a_paused_turn_is_not_warned_in_its_own_reply() {
    let mut run = Run::new(Lifetime::Session, "[budget]\noutput_tokens = 100\n");
    let Phase::Thinking { call } = *run.state.phase() else {
        panic!("it asks: {:?}", run.state.phase())
    };
    let reply = Reply {
        blocks: vec![Block::text("more to come")],
        stop: StopReason::Pause,
        usage: output(85),
    };
    run.feed(Input::Completed {
        call,
        result: Completion::Model(Ok(reply.clone())),
    });
    run.feed(Input::Signal(Signal::Interrupt));
    let mut state = run.first.clone();
    let upto = run
        .facts
        .iter()
        .position(|fact| matches!(fact, Fact::Turn(TurnFact::Interrupted { .. })))
        .expect("it is interrupted");
    run.facts[..=upto]
        .iter()
        .for_each(|fact| evolve(&mut state, fact));
    let restored = Run::of(state);
    let request = restored.request().expect("it goes on");
    let last = request.messages.last().expect("something was said");
    assert_eq!(
        (last.role, &last.blocks),
        (Role::Assistant, &reply.blocks),
        "a reply is sent as it came"
    );
}
