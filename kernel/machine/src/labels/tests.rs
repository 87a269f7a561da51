use dormouse_proto::budget::Budget;
use dormouse_proto::label::Period;

use super::*;
use crate::schedule::parse_time;

fn at(text: &str) -> u64 {
    parse_time(text, None).unwrap()
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn output(tokens: u64) -> Usage {
    Usage {
        output_tokens: tokens,
        ..Usage::default()
    }
}

fn of_output(tokens: u64) -> Budget {
    Budget::default().with(Amount::OutputTokens, Some(tokens))
}

fn set(label: &Label, budget: LabelBudget) -> LabelChange {
    LabelChange::BudgetSet {
        label: label.clone(),
        budget: Some(budget),
    }
}

fn used_by(labels: &[Label], tokens: u64) -> LabelChange {
    LabelChange::Used {
        labels: labels.into(),
        usage: output(tokens),
    }
}

/// Commits changes, as they were charged before.
fn commit(book: &mut LabelBook, changes: &[LabelChange], at_ms: u64) {
    for change in changes {
        if let LabelChange::Used { labels, usage } = change {
            book.charge(labels, *usage);
        }
    }
    let draft = book.draft(changes, at_ms);
    book.finish(draft, changes);
}

fn spent(book: &LabelBook, now_ms: u64) -> Vec<u64> {
    let statuses = book.statuses(now_ms).into_iter();
    statuses.map(|status| status.spent.output_tokens).collect()
}

#[test]
fn a_budget_is_shared_by_all_trees_with_the_label_and_begins_anew_each_day() {
    let (anna, noon) = (label("user=anna"), at("2026-03-28T12:00:00Z"));
    let mut book = LabelBook::default();
    let berlin = LabelBudget::per_day(of_output(100)).in_zone("Europe/Berlin");
    commit(&mut book, &[set(&anna, berlin)], noon);
    let labels = [anna.clone(), label("project=x")];
    commit(&mut book, &[used_by(&labels, 60)], noon);
    assert_eq!(book.exhausted(&labels, noon), None);
    book.charge(&labels, output(40));
    let exhausted = book.exhausted(&labels, noon).unwrap();
    assert_eq!(exhausted.label, anna);
    assert_eq!(exhausted.reached.to_string(), "output_tokens 100 of 100");
    assert_eq!(exhausted.until_ms, at("2026-03-28T23:00:00Z"));
    assert_eq!(book.exhausted(&[label("user=ben")], noon), None);
    assert_eq!(
        book.exhausted(&labels, exhausted.until_ms),
        None,
        "a new day has a budget of its own"
    );
    // Its commit failed.
    book.finish(LabelDraft::default(), [&used_by(&labels, 40)]);
    // The day on which the clock is set has 23 hours.
    commit(&mut book, &[used_by(&labels, 40)], exhausted.until_ms);
    let status = &book.statuses(exhausted.until_ms)[0];
    assert_eq!(status.since_ms, at("2026-03-28T23:00:00Z"));
    assert_eq!(status.until_ms, at("2026-03-29T22:00:00Z"));
    assert_eq!(status.spent.output_tokens, 40);
}

#[test]
fn a_failed_commit_counts_nothing_and_a_commit_counts_once() {
    let (anna, now) = (label("user=anna"), at("2026-03-01T12:00:00Z"));
    let mut book = LabelBook::default();
    let budget = LabelBudget::per_month(of_output(10));
    commit(&mut book, &[set(&anna, budget)], now);
    let labels = [anna.clone()];
    let change = used_by(&labels, 10);
    book.charge(&labels, output(10));
    book.finish(LabelDraft::default(), [&change]);
    assert_eq!(
        (spent(&book, now), book.exhausted(&labels, now)),
        (vec![0], None)
    );
    commit(&mut book, &[change.clone(), change], now);
    assert_eq!(spent(&book, now), [20]);
    let records = book.labels[&anna].stored.clone();
    let again = LabelBook::new(records);
    assert_eq!(again.statuses(now), book.statuses(now));
    assert!(again.exhausted(&labels, now).is_some());
}

#[test]
fn a_raise_keeps_the_count_and_another_period_begins_at_zero() {
    let (anna, now) = (label("user=anna"), at("2026-03-15T12:00:00Z"));
    let mut book = LabelBook::default();
    let labels = [anna.clone()];
    let per_day = |tokens| set(&anna, LabelBudget::per_day(of_output(tokens)));
    commit(&mut book, &[per_day(10), used_by(&labels, 12)], now);
    assert!(book.exhausted(&labels, now).is_some());
    commit(&mut book, &[per_day(20)], now);
    assert_eq!(
        (spent(&book, now), book.exhausted(&labels, now)),
        (vec![12], None)
    );
    let per_month = set(&anna, LabelBudget::per_month(of_output(20)));
    commit(&mut book, &[per_month], now);
    assert_eq!(spent(&book, now), [0]);
    let status = &book.statuses(now)[0];
    assert_eq!(
        (status.since_ms, status.until_ms),
        (now, at("2026-04-01T00:00:00Z"))
    );
    let removed = LabelChange::BudgetSet {
        label: anna.clone(),
        budget: None,
    };
    commit(&mut book, &[used_by(&labels, 50), removed], now);
    assert_eq!(
        (spent(&book, now), book.exhausted(&labels, now)),
        (vec![], None)
    );
}

#[test]
fn a_clock_that_is_set_back_begins_no_period() {
    let (anna, now) = (label("user=anna"), at("2026-03-15T00:00:01Z"));
    let mut book = LabelBook::default();
    let labels = [anna.clone()];
    let budget = set(&anna, LabelBudget::per_day(of_output(10)));
    commit(&mut book, &[budget, used_by(&labels, 4)], now);
    commit(&mut book, &[used_by(&labels, 5)], now - 2_000);
    assert_eq!(spent(&book, now), [9]);
    assert_eq!(book.statuses(now)[0].since_ms, now);
}

#[test]
fn only_what_is_counted_for_labels_can_be_limited() {
    let check = |limits| check_label_budget(&LabelBudget::per_day(limits));
    assert_eq!(check(of_output(1)), Ok(()));
    assert_eq!(check(Budget::default()), Err(LabelError::NoLimit));
    let processes = of_output(1).with(Amount::Processes, Some(3));
    assert_eq!(check(processes), Err(LabelError::Amount(Amount::Processes)));
    // East of Greenwich, the first day of the epoch begins before the epoch.
    for zone in ["Europe/Berlin", "Asia/Tokyo", "America/New_York", "UTC"] {
        for per in [Period::Day, Period::Month] {
            let budget = LabelBudget {
                per,
                ..LabelBudget::per_day(of_output(1)).in_zone(zone)
            };
            assert!(check_label_budget(&budget).is_ok(), "{zone}");
        }
    }
    let moon = LabelBudget::per_day(of_output(1)).in_zone("Moon/Tycho");
    let error = check_label_budget(&moon).unwrap_err();
    assert!(
        error.to_string().contains("'Moon/Tycho' is no time zone"),
        "{error}"
    );
    assert_eq!(LabelBudget::per_month(of_output(1)).per, Period::Month);
}

#[test]
fn a_kernel_with_slices_stops_at_its_own_and_says_whether_there_is_more() {
    let (anna, noon) = (label("user=anna"), at("2026-03-28T12:00:00Z"));
    let midnight = at("2026-03-29T00:00:00Z");
    let mut book = LabelBook::default();
    let day = LabelBudget::per_day(of_output(100));
    commit(&mut book, &[set(&anna, day)], noon);
    let labels = [anna.clone()];
    commit(&mut book, &[used_by(&labels, 20)], noon);
    book.charge(&labels, output(10));
    let exhausted = |now_ms, own, elsewhere| {
        let slice = |of: &Label, until_ms, used: &Usage| {
            let is_next_day = now_ms >= midnight;
            assert_eq!(*of, anna);
            assert_eq!(until_ms, midnight + u64::from(is_next_day) * 86_400_000);
            assert_eq!(used.output_tokens, if is_next_day { 10 } else { 30 });
            Some(LabelSlice {
                limits: of_output(own),
                used_elsewhere: output(elsewhere),
            })
        };
        let exhausted = book.exhausted_in_slices(&labels, now_ms, &slice);
        exhausted.map(|exhausted| (exhausted.reached.to_string(), exhausted.rest))
    };
    let reached = |used, rest| Some((format!("output_tokens {used} of 100"), rest));
    assert_eq!(exhausted(noon, 31, 60), None);
    assert_eq!(exhausted(noon, 30, 60), reached(90, BudgetRest::Elsewhere));
    assert_eq!(exhausted(noon, 30, 70), reached(100, BudgetRest::UsedUp));
    assert_eq!(
        exhausted(midnight, 0, 0),
        reached(10, BudgetRest::Elsewhere),
        "a new period needs a slice of its own"
    );
    assert_eq!(exhausted(midnight, 11, 0), None);
    let [ben, eve] = ["user=ben", "user=eve"].map(label);
    let slice = |of: &Label, _, _: &Usage| (*of == ben).then(LabelSlice::default);
    assert!(
        book.exhausted_in_slices(std::slice::from_ref(&ben), noon, &slice)
            .is_some(),
        "it is not counted here yet"
    );
    assert_eq!(book.exhausted_in_slices(&[eve], noon, &slice), None);
    assert_eq!(
        book.exhausted_in_slices(&labels, noon, &|_, _, _| None),
        None,
        "the budget was removed"
    );
}
