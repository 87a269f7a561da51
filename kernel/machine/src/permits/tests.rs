//! Tests the queue by cases, and against a simple model that scans lists.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;

fn requester(priority: Priority, tree: u64) -> Requester {
    Requester {
        priority,
        tree: Pid(tree),
    }
}

fn normal(tree: u64) -> Requester {
    requester(Priority::Normal, tree)
}

fn enter_many(permits: &mut Permits, count: usize, requester: Requester) {
    for _ in 0..count {
        permits.enter(requester);
    }
}

/// Grants permits and returns each at once, until no call is waiting. Returns the requesters in the
/// order of their permits.
fn drain(permits: &mut Permits) -> Vec<Requester> {
    let mut served = Vec::new();
    while let Some(ticket) = permits.grant(0) {
        served.push(permits.tickets[&ticket].0);
        permits.leave(ticket);
    }
    served
}

#[test]
fn at_most_the_configured_number_of_permits_is_granted() {
    for (bound, expected) in [(0, 1), (1, 1), (3, 3), (9, 5)] {
        let mut permits = Permits::new(bound);
        enter_many(&mut permits, 5, normal(1));
        let granted: Vec<_> = std::iter::from_fn(|| permits.grant(0)).collect();
        assert_eq!(
            (granted.len(), permits.granted(), permits.waiting()),
            (expected, expected, 5 - expected)
        );
        permits.leave(granted[0]);
        assert_eq!(
            permits.grant(0).is_some(),
            expected < 5,
            "a permit that is given back goes to the next"
        );
    }
}

#[test]
fn trees_take_turns_and_calls_of_a_tree_keep_their_order() {
    let cases: [(&[u64], &[u64]); 4] = [
        (&[1, 1, 1, 2, 3, 2], &[1, 2, 3, 1, 2, 1]),
        (&[1, 2, 1, 2, 1, 2], &[1, 2, 1, 2, 1, 2]),
        (&[3, 2, 1], &[3, 2, 1]),
        (&[1, 1, 1], &[1, 1, 1]),
    ];
    for (enter, expected) in cases {
        let mut permits = Permits::new(1);
        let tickets: Vec<_> = enter
            .iter()
            .map(|tree| permits.enter(normal(*tree)))
            .collect();
        let mut served = Vec::new();
        while let Some(ticket) = permits.grant(0) {
            served.push(ticket);
            permits.leave(ticket);
        }
        let by_tree: Vec<_> = served
            .iter()
            .map(|ticket| enter[ticket.0 as usize])
            .collect();
        assert_eq!(by_tree, expected, "{enter:?}");
        for tree in [1, 2, 3] {
            let own = |all: &[PermitTicket]| {
                all.iter()
                    .filter(|ticket| enter[ticket.0 as usize] == tree)
                    .copied()
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                own(&served),
                own(&tickets),
                "first come, first served within a tree"
            );
        }
    }
}

#[test]
fn a_new_tree_comes_before_the_waiting_calls_of_the_served_tree() {
    let mut permits = Permits::new(1);
    let first = permits.enter(normal(1));
    assert_eq!(permits.grant(0), Some(first));
    enter_many(&mut permits, 50, normal(1));
    let other = permits.enter(normal(2));
    permits.leave(first);
    assert_eq!(permits.grant(0), Some(other));
}

#[test]
fn a_tree_gets_a_permit_although_new_trees_keep_arriving() {
    let mut permits = Permits::new(1);
    let mut running = permits.enter(normal(0));
    assert_eq!(permits.grant(0), Some(running));
    let old = permits.enter(normal(0));
    for newcomer in 1..10 {
        permits.enter(normal(newcomer));
        permits.enter(normal(newcomer + 100));
        permits.leave(running);
        running = permits.grant(0).unwrap();
        if running == old {
            return;
        }
    }
    panic!("the old tree starves");
}

#[test]
fn classes_share_permits_four_to_two_to_one_and_a_lone_class_gets_all() {
    let mut permits = Permits::new(1);
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        enter_many(&mut permits, 40, requester(priority, 1));
    }
    let served = drain(&mut permits);
    let share = |priority| {
        served[..70]
            .iter()
            .filter(|requester| requester.priority == priority)
            .count()
    };
    assert_eq!(
        (
            share(Priority::High),
            share(Priority::Normal),
            share(Priority::Low)
        ),
        (40, 20, 10)
    );
    assert_eq!(served[0].priority, Priority::High);
    assert_eq!(served.len(), 120, "nobody is left");
}

#[test]
fn a_few_calls_of_each_class_are_served_by_descending_priority() {
    let mut permits = Permits::new(1);
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        enter_many(&mut permits, 2, requester(priority, 1));
    }
    let served: Vec<_> = drain(&mut permits)
        .iter()
        .map(|requester| requester.priority)
        .collect();
    assert_eq!(
        served,
        [
            Priority::High,
            Priority::High,
            Priority::Normal,
            Priority::Normal,
            Priority::Low,
            Priority::Low
        ]
    );
}

#[test]
fn an_empty_class_does_not_save_up_permits() {
    let mut permits = Permits::new(1);
    enter_many(&mut permits, 100, requester(Priority::High, 1));
    drain(&mut permits);
    enter_many(&mut permits, 8, requester(Priority::Low, 2));
    enter_many(&mut permits, 8, requester(Priority::High, 1));
    let served = drain(&mut permits);
    let low = served[..5]
        .iter()
        .filter(|requester| requester.priority == Priority::Low)
        .count();
    assert_eq!(low, 1, "{served:?}");
}

#[test]
fn a_pause_stops_all_grants_and_is_never_shortened() {
    let mut permits = Permits::new(2);
    let ticket = permits.enter(requester(Priority::High, 1));
    permits.pause(100);
    permits.pause(50);
    for (now, until) in [
        (0, Some(100)),
        (50, Some(100)),
        (99, Some(100)),
        (100, None),
    ] {
        assert_eq!(permits.paused_until(now), until);
        assert_eq!(
            permits.grant(now),
            until.is_none().then_some(ticket),
            "at {now}"
        );
    }
    permits.pause(200);
    permits.leave(ticket);
    permits.enter(normal(1));
    assert_eq!(
        permits.grant(150),
        None,
        "a permit that comes back in a pause is not given out"
    );
}

fn demand(tokens: u64) -> TokenDemand {
    TokenDemand {
        tokens,
        per_minute: 100,
    }
}

#[test]
fn a_call_waits_until_the_last_minute_leaves_room_for_its_tokens() {
    let mut permits = Permits::new(4);
    let first = permits.enter_limited(normal(1), demand(60));
    let second = permits.enter_limited(normal(2), demand(60));
    let third = permits.enter_limited(normal(3), demand(10));
    assert_eq!(permits.grant(0), Some(first));
    assert_eq!(
        permits.grant(0),
        None,
        "the third one stays behind the second"
    );
    assert_eq!(permits.wake_ms(0), None, "the first one has to end");
    permits.end_call(first, Some(50), 1_000);
    permits.leave(first);
    assert_eq!(permits.grant(1_000), None);
    assert_eq!(permits.wake_ms(1_000), Some(61_000));
    assert_eq!(permits.grant(60_999), None);
    assert_eq!(permits.grant(61_000), Some(second));
    assert_eq!(permits.grant(61_000), Some(third));
    // Without usage, as of a failed call, the estimate counts.
    permits.end_call(second, None, 62_000);
    permits.leave(second);
    let fourth = permits.enter_limited(normal(4), demand(31));
    assert_eq!(permits.grant(62_000), None);
    permits.end_call(third, Some(9), 63_000);
    permits.leave(third);
    assert_eq!(permits.grant(63_000), Some(fourth));
}

#[test]
fn a_call_that_is_larger_than_its_limit_runs_alone() {
    let mut permits = Permits::new(2);
    let unlimited = permits.enter(normal(1));
    let large = permits.enter_limited(normal(2), demand(1_000));
    assert_eq!(permits.grant(0), Some(unlimited));
    assert_eq!(permits.grant(0), Some(large), "nothing counts yet");
    permits.end_call(unlimited, Some(1), 10);
    permits.leave(unlimited);
    permits.end_call(large, Some(2_000), 10);
    permits.leave(large);
    let next = permits.enter_limited(normal(3), demand(1));
    let withdrawn = permits.enter_limited(normal(4), demand(1));
    permits.leave(withdrawn);
    assert_eq!(
        permits.wake_ms(10),
        Some(60_010),
        "a call without a limit counts too"
    );
    assert_eq!(permits.grant(60_010), Some(next));
    assert_eq!(permits.demands.len(), 0);
}

#[test]
fn leaving_frees_a_waiting_ticket_or_a_granted_permit() {
    let mut permits = Permits::new(1);
    let (served, waits) = (permits.enter(normal(1)), permits.enter(normal(2)));
    assert_eq!(permits.grant(0), Some(served));
    permits.leave(waits);
    permits.leave(waits);
    permits.leave(served);
    permits.leave(served);
    assert_eq!(
        (permits.granted(), permits.waiting(), permits.grant(0)),
        (0, 0, None)
    );
    let last = permits.enter(normal(3));
    assert_eq!(permits.grant(0), Some(last), "the bound is whole again");
}

/// Strides of low, normal and high priority.
const STRIDES: [u64; 3] = [4, 2, 1];

/// The rules of the queue on unsorted lists.
///
/// Each entry of `classes` has the priority, the pass value and the number of grants of a class.
/// Each entry of `turns` has a requester, its turn, and the ticket since which it waits.
#[derive(Default)]
struct Model {
    bound: usize,
    paused_until_ms: u64,
    current_pass: u64,
    granted: Vec<(PermitTicket, Requester)>,
    waiting: Vec<(PermitTicket, Requester)>,
    classes: Vec<(Priority, u64, u64)>,
    turns: Vec<(Requester, u64, PermitTicket)>,
}

impl Model {
    fn class(&mut self, priority: Priority) -> &mut (Priority, u64, u64) {
        if self.classes.iter().all(|class| class.0 != priority) {
            self.classes.push((priority, 0, 0));
        }
        self.classes
            .iter_mut()
            .find(|class| class.0 == priority)
            .unwrap()
    }

    fn enter(&mut self, ticket: PermitTicket, requester: Requester) {
        let current_pass = self.current_pass;
        let is_alone = self
            .waiting
            .iter()
            .all(|(_, other)| other.priority != requester.priority);
        let (_, pass, grants) = self.class(requester.priority);
        let min_pass = current_pass + STRIDES[requester.priority as usize];
        *pass = if is_alone { min_pass.max(*pass) } else { *pass };
        let now = *grants;
        if self.waiting.iter().all(|(_, other)| *other != requester) {
            let has_permit = self.granted.iter().any(|(_, other)| *other == requester);
            let before = self
                .turns
                .iter()
                .find(|(other, ..)| *other == requester && has_permit)
                .map_or(now, |known| known.1);
            self.turns.retain(|(other, ..)| *other != requester);
            self.turns.push((requester, before.max(now), ticket));
        }
        self.waiting.push((ticket, requester));
    }

    fn grant(&mut self, now: u64) -> Option<PermitTicket> {
        if now < self.paused_until_ms || self.granted.len() >= self.bound {
            return None;
        }
        let waits = |class: &&(Priority, u64, u64)| {
            self.waiting
                .iter()
                .any(|(_, requester)| requester.priority == class.0)
        };
        let class = self
            .classes
            .iter()
            .filter(waits)
            .min_by_key(|class| (class.1, Reverse(class.0)))?;
        let (priority, pass, _) = *class;
        let is_waiting = |(requester, ..): &&(Requester, u64, PermitTicket)| {
            requester.priority == priority
                && self.waiting.iter().any(|(_, other)| other == requester)
        };
        let (requester, ..) = *self
            .turns
            .iter()
            .filter(is_waiting)
            .min_by_key(|(_, turn, since)| (*turn, *since))
            .unwrap();
        let (ticket, _) = *self
            .waiting
            .iter()
            .filter(|(_, other)| *other == requester)
            .min_by_key(|one| one.0)
            .unwrap();
        self.current_pass = pass;
        self.waiting.retain(|(other, _)| *other != ticket);
        self.granted.push((ticket, requester));
        let class = self.class(priority);
        class.1 += STRIDES[priority as usize];
        class.2 += 1;
        let grants = class.2;
        let mut others: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, other)| other.priority == priority)
            .collect();
        others.retain(|(_, other)| *other != requester);
        others.sort_by_key(|(_, other)| other.tree);
        others.dedup_by_key(|(_, other)| other.tree);
        let turn = grants + others.len().max(1) as u64;
        let next = self
            .waiting
            .iter()
            .filter(|(_, other)| *other == requester)
            .map(|one| one.0)
            .min();
        self.turns.retain(|(other, ..)| *other != requester);
        self.turns.push((requester, turn, next.unwrap_or(ticket)));
        Some(ticket)
    }

    fn leave(&mut self, ticket: PermitTicket) {
        self.granted.retain(|(other, _)| *other != ticket);
        self.waiting.retain(|(other, _)| *other != ticket);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enter { class: usize, tree: u64 },
    Leave { which: usize },
    Pause { ms: u64 },
    Later { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize, 0..5_u64).prop_map(|(class, tree)| Step::Enter { class, tree }),
        5 => any::<prop::sample::Index>().prop_map(|which| Step::Leave { which: which.index(1 << 16) }),
        1 => (0..40_u64).prop_map(|ms| Step::Pause { ms }),
        2 => (0..30_u64).prop_map(|ms| Step::Later { ms }),
    ]
}

proptest! {
    #[test]
    fn the_queue_behaves_like_the_model(bound in 1..4_usize, steps in prop::collection::vec(step(), 1..200)) {
        let mut permits = Permits::new(bound);
        let mut model = Model { bound, ..Model::default() };
        let mut now = 0;
        for step in steps {
            match step {
                Step::Enter { class, tree } => {
                    let requester = requester([Priority::Low, Priority::Normal, Priority::High][class], tree);
                    let ticket = permits.enter(requester);
                    model.enter(ticket, requester);
                }
                Step::Leave { which } => {
                    let all: Vec<_> = model.granted.iter().chain(&model.waiting).map(|(ticket, _)| *ticket).collect();
                    if let Some(ticket) = all.get(which % all.len().max(1)) {
                        permits.leave(*ticket);
                        model.leave(*ticket);
                    }
                }
                Step::Pause { ms } => {
                    permits.pause(now + ms);
                    model.paused_until_ms = model.paused_until_ms.max(now + ms);
                }
                Step::Later { ms } => now += ms,
            }
            loop {
                let granted = permits.grant(now);
                prop_assert_eq!(granted, model.grant(now));
                prop_assert!(permits.granted() <= bound);
                if granted.is_none() {
                    break;
                }
            }
            prop_assert_eq!((permits.granted(), permits.waiting()), (model.granted.len(), model.waiting.len()));
            let idle = permits.granted() < bound && permits.paused_until(now).is_none();
            prop_assert!(!idle || permits.waiting() == 0, "a permit lies idle while someone waits");
        }
    }
}

#[test]
fn a_queue_keeps_its_share_of_limits_that_others_use_too() {
    let mut permits = Permits::new(8);
    let share = |calls, tokens| PermitShare {
        calls: Some(calls),
        tokens: Some(TokenShare { tokens, of: 100 }),
    };
    permits.set_share(share(0, 100));
    let first = permits.enter_limited(normal(1), demand(40));
    let second = permits.enter_limited(normal(2), demand(40));
    let large = permits.enter_limited(normal(3), demand(1_000));
    assert_eq!((permits.grant(0), permits.wake_ms(0)), (None, None));
    let waits = permits.demand(0);
    assert_eq!((waits.granted, waits.waiting), (0, 3));
    assert_eq!(
        (waits.next, waits.next_tokens, waits.waiting_tokens),
        (Some(first), 40, 1_080)
    );
    assert_eq!((waits.tokens, waits.per_minute), (0, Some(100)));
    permits.set_share(share(2, 40));
    assert_eq!(permits.grant(0), Some(first));
    assert_eq!(permits.grant(0), None, "the tokens of the share are used");
    permits.set_share(share(2, 80));
    assert_eq!(permits.grant(0), Some(second));
    permits.set_share(share(3, 100));
    assert_eq!(permits.demand(0).tokens, 80);
    for ticket in [first, second] {
        permits.end_call(ticket, Some(40), 0);
        permits.leave(ticket);
    }
    assert_eq!(permits.grant(59_999), None);
    permits.set_share(share(3, 99));
    assert_eq!(permits.grant(60_000), None, "others may use tokens");
    permits.set_share(share(3, 100));
    assert_eq!(permits.grant(60_000), Some(large));
}
