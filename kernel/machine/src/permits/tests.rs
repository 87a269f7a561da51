//! The queue by cases, and against a model that only scans lists.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;

fn asker(priority: Priority, tree: u64) -> Requester {
    Requester {
        priority,
        tree: Pid(tree),
    }
}

fn normal(tree: u64) -> Requester {
    asker(Priority::Normal, tree)
}

fn crowd(permits: &mut Permits, count: usize, asker: Requester) {
    for _ in 0..count {
        permits.enter(asker);
    }
}

/// Grants one permit after the other, each given back at once, until nobody waits: who they went
/// to.
fn drain(permits: &mut Permits) -> Vec<Requester> {
    let mut served = Vec::new();
    while let Some(ticket) = permits.grant(0) {
        served.push(permits.tickets[&ticket].0);
        permits.leave(ticket);
    }
    served
}

#[test]
fn no_more_permits_are_out_than_the_bound_says() {
    for (bound, expected) in [(0, 1), (1, 1), (3, 3), (9, 5)] {
        let mut permits = Permits::new(bound);
        crowd(&mut permits, 5, normal(1));
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
fn trees_take_turns_and_each_serves_its_calls_in_their_order() {
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
fn one_call_of_a_tree_is_served_next_whatever_another_has_waiting() {
    let mut permits = Permits::new(1);
    let first = permits.enter(normal(1));
    assert_eq!(permits.grant(0), Some(first));
    crowd(&mut permits, 50, normal(1));
    let other = permits.enter(normal(2));
    permits.leave(first);
    assert_eq!(permits.grant(0), Some(other));
}

#[test]
fn a_tree_is_served_however_many_new_ones_come() {
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
fn classes_are_served_four_to_two_to_one_and_those_alone_at_once() {
    let mut permits = Permits::new(1);
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        crowd(&mut permits, 40, asker(priority, 1));
    }
    let served = drain(&mut permits);
    let share = |priority| {
        served[..70]
            .iter()
            .filter(|asker| asker.priority == priority)
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
fn a_few_of_each_class_are_served_from_the_highest_to_the_lowest() {
    let mut permits = Permits::new(1);
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        crowd(&mut permits, 2, asker(priority, 1));
    }
    let served: Vec<_> = drain(&mut permits)
        .iter()
        .map(|asker| asker.priority)
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
fn a_class_that_was_away_has_saved_nothing_up() {
    let mut permits = Permits::new(1);
    crowd(&mut permits, 100, asker(Priority::High, 1));
    drain(&mut permits);
    crowd(&mut permits, 8, asker(Priority::Low, 2));
    crowd(&mut permits, 8, asker(Priority::High, 1));
    let served = drain(&mut permits);
    let low = served[..5]
        .iter()
        .filter(|asker| asker.priority == Priority::Low)
        .count();
    assert_eq!(low, 1, "{served:?}");
}

#[test]
fn a_pause_holds_everybody_and_is_never_shortened() {
    let mut permits = Permits::new(2);
    let ticket = permits.enter(asker(Priority::High, 1));
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

#[test]
fn who_gives_up_leaves_nothing_behind_whether_it_waited_or_was_served() {
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

/// Of low, normal and high.
const STRIDES: [u64; 3] = [4, 2, 1];

/// The same rules on lists, with nothing kept in order.
#[derive(Default)]
struct Model {
    bound: usize,
    until: u64,
    reached: u64,
    out: Vec<(PermitTicket, Requester)>,
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

    fn enter(&mut self, ticket: PermitTicket, asker: Requester) {
        let reached = self.reached;
        let is_alone = self
            .waiting
            .iter()
            .all(|(_, other)| other.priority != asker.priority);
        let (_, pass, grants) = self.class(asker.priority);
        let least = reached + STRIDES[asker.priority as usize];
        *pass = if is_alone { least.max(*pass) } else { *pass };
        let now = *grants;
        if self.waiting.iter().all(|(_, other)| *other != asker) {
            let is_out = self.out.iter().any(|(_, other)| *other == asker);
            let before = self
                .turns
                .iter()
                .find(|(other, ..)| *other == asker && is_out)
                .map_or(now, |known| known.1);
            self.turns.retain(|(other, ..)| *other != asker);
            self.turns.push((asker, before.max(now), ticket));
        }
        self.waiting.push((ticket, asker));
    }

    fn grant(&mut self, now: u64) -> Option<PermitTicket> {
        if now < self.until || self.out.len() >= self.bound {
            return None;
        }
        let waits = |class: &&(Priority, u64, u64)| {
            self.waiting
                .iter()
                .any(|(_, asker)| asker.priority == class.0)
        };
        let class = self
            .classes
            .iter()
            .filter(waits)
            .min_by_key(|class| (class.1, Reverse(class.0)))?;
        let (priority, pass, _) = *class;
        let in_line = |(asker, ..): &&(Requester, u64, PermitTicket)| {
            asker.priority == priority && self.waiting.iter().any(|(_, other)| other == asker)
        };
        let (asker, ..) = *self
            .turns
            .iter()
            .filter(in_line)
            .min_by_key(|(_, turn, since)| (*turn, *since))
            .unwrap();
        let (ticket, _) = *self
            .waiting
            .iter()
            .filter(|(_, other)| *other == asker)
            .min_by_key(|one| one.0)
            .unwrap();
        self.reached = pass;
        self.waiting.retain(|(other, _)| *other != ticket);
        self.out.push((ticket, asker));
        let class = self.class(priority);
        class.1 += STRIDES[priority as usize];
        class.2 += 1;
        let grants = class.2;
        let mut others: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, other)| other.priority == priority)
            .collect();
        others.retain(|(_, other)| *other != asker);
        others.sort_by_key(|(_, other)| other.tree);
        others.dedup_by_key(|(_, other)| other.tree);
        let turn = grants + others.len().max(1) as u64;
        let next = self
            .waiting
            .iter()
            .filter(|(_, other)| *other == asker)
            .map(|one| one.0)
            .min();
        self.turns.retain(|(other, ..)| *other != asker);
        self.turns.push((asker, turn, next.unwrap_or(ticket)));
        Some(ticket)
    }

    fn leave(&mut self, ticket: PermitTicket) {
        self.out.retain(|(other, _)| *other != ticket);
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
    fn any_course_goes_as_lists_say(bound in 1..4_usize, steps in prop::collection::vec(step(), 1..200)) {
        let mut permits = Permits::new(bound);
        let mut model = Model { bound, ..Model::default() };
        let mut now = 0;
        for step in steps {
            match step {
                Step::Enter { class, tree } => {
                    let asker = asker([Priority::Low, Priority::Normal, Priority::High][class], tree);
                    let ticket = permits.enter(asker);
                    model.enter(ticket, asker);
                }
                Step::Leave { which } => {
                    let all: Vec<_> = model.out.iter().chain(&model.waiting).map(|(ticket, _)| *ticket).collect();
                    if let Some(ticket) = all.get(which % all.len().max(1)) {
                        permits.leave(*ticket);
                        model.leave(*ticket);
                    }
                }
                Step::Pause { ms } => {
                    permits.pause(now + ms);
                    model.until = model.until.max(now + ms);
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
            prop_assert_eq!((permits.granted(), permits.waiting()), (model.out.len(), model.waiting.len()));
            let idle = permits.granted() < bound && permits.paused_until(now).is_none();
            prop_assert!(!idle || permits.waiting() == 0, "a permit lies idle while someone waits");
        }
    }
}
