//! TREE-1: what a tree uses stays within its root's budget, but for what single calls overshoot.
//! After each step as one process and its nearest can show it, and at times by adding up what the
//! whole tree uses.

use dormouse_proto::record::CallFact;
use std::collections::BTreeMap;

use dormouse_kernel::budget::Account;
use dormouse_kernel::process::{Fact, State, evolve};
use dormouse_proto::budget::{Amount, Change};
use dormouse_proto::id::Pid;
use dormouse_proto::model::Usage;

use super::{Held, Violation, ensure};
use crate::process::Running;
use crate::supervisor::table::place;
use crate::world::World;

/// What a process used, beside its machine's account of it.
#[derive(Default)]
pub(super) struct Spending {
    own: BTreeMap<Amount, u64>,
    /// What it used in each earlier life, and the fact that began the next: the account of a child
    /// that is opened again is a new one.
    past: Vec<(u64, BTreeMap<Amount, u64>)>,
    /// By how much single calls used more than was left.
    overshot: BTreeMap<Amount, u64>,
}

impl Spending {
    /// A life begins after fact `last`. One that starts from another process may start beyond its
    /// limits.
    pub(super) fn begin(&mut self, account: &Account, last: u64) {
        if last == 0 {
            self.overshot = Amount::SHARED
                .into_iter()
                .map(|amount| (amount, account.overdrawn(amount)))
                .collect();
        }
        self.past.retain(|(at, _)| *at <= last);
        self.count(account);
    }

    /// All that it used, in this life and before.
    fn total(&self, amount: Amount) -> u64 {
        let past = match amount {
            Amount::ResidentBytes => &[],
            _ => &self.past[..],
        };
        let lives = past.iter().map(|(_, own)| own).chain([&self.own]);
        lives.filter_map(|own| own.get(&amount)).sum()
    }

    fn count(&mut self, account: &Account) {
        self.own = Amount::SHARED
            .into_iter()
            .map(|amount| (amount, own(account, amount)))
            .collect();
    }
}

impl World {
    pub(super) fn tree_1(&mut self, running: &Running, before: &State, facts: &[Fact]) -> Held {
        self.shares_of(running)?;
        self.overdraws(before, facts)?;
        let (pid, account) = (running.pid(), running.state.budget());
        if facts
            .iter()
            .any(|fact| matches!(fact, Fact::Call(CallFact::ModelCalled { .. })))
        {
            let is_free =
                account.reached_limit(self.time_ms()).is_none() && !account.waits_for_shares();
            ensure(is_free, "TREE-1", || {
                format!("{pid} asks its model beyond its limits: {account:?}")
            })?;
        }
        let opened = (running.last() + 1..)
            .zip(facts)
            .find(|(_, fact)| matches!(fact, Fact::Reopened { budget: Some(_) }));
        if let Some(ledger) = self.ledgers.get_mut(&pid) {
            if let Some((number, _)) = opened {
                let own = ledger.spending.own.clone();
                ledger.spending.past.push((number, own));
            }
            ledger.spending.count(account);
        }
        if self.steps.is_multiple_of(16) {
            self.whole_tree(pid, running)
        } else {
            Ok(())
        }
    }

    /// Each living child has its share, and may use no more than that; so has this one of its
    /// parent.
    fn shares_of(&self, running: &Running) -> Held {
        let (pid, state) = (running.pid(), &running.state);
        for (child, _) in self.supervisor.table.living_children(pid) {
            if let Some(child) = self.running.get(&child) {
                self.share_of(state, &child.state)?;
            }
        }
        let parent = self.supervisor.table.row(pid).and_then(|row| row.parent);
        match parent.and_then(|parent| self.running.get(&parent)) {
            Some(parent) if self.supervisor.table.lives(pid) => self.share_of(&parent.state, state),
            _ => Ok(()),
        }
    }

    fn share_of(&self, parent: &State, child: &State) -> Held {
        let Some(row) = self
            .supervisor
            .table
            .row(child.pid())
            .filter(|_| parent.exit().is_none())
        else {
            return Ok(());
        };
        let Some(place) = place(&row.origin) else {
            return Ok(());
        };
        // Its parent has ended, which kills it, and was opened again before it heard of that.
        if parent.reopenings() > 0 && self.supervisor.table.is_doomed(child.pid()) {
            return Ok(());
        }
        let (above, below) = (parent.budget(), child.budget());
        let broken = |breach| {
            Violation::of(
                "TREE-1",
                format!("{} of {}: {breach}", child.pid(), parent.pid()),
            )
        };
        above.check([(place, below.as_ref())]).map_err(broken)?;
        let is_in_time = above.limits().wall_time_ms.is_none_or(|limit| {
            let limit_below = below.limits().wall_time_ms;
            limit_below.is_some_and(|it| it <= limit)
        });
        ensure(is_in_time, "TREE-1", || {
            format!("{} may run longer than {}", child.pid(), parent.pid())
        })
    }

    /// A limit is exceeded by nothing but the overshoot of a single call, of this process or of a
    /// child that has ended.
    fn overdraws(&mut self, before: &State, facts: &[Fact]) -> Held {
        let is_limited = |amount: &Amount| before.budget().limits().limit(*amount).is_some();
        if !Amount::SHARED
            .iter()
            .filter(|amount| **amount != Amount::Processes)
            .any(is_limited)
        {
            return Ok(());
        }
        let (pid, mut state) = (before.pid(), before.clone());
        for fact in facts {
            let was = state.budget().clone();
            evolve(&mut state, fact);
            let is = state.budget();
            for amount in Amount::SHARED {
                let used = own(is, amount).saturating_sub(own(&was, amount));
                let over = was
                    .remaining(amount)
                    .map_or(0, |left| used.saturating_sub(left));
                let grown = is.overdrawn(amount).saturating_sub(was.overdrawn(amount));
                let may = over + overshot_by_child(&was, fact, amount);
                ensure(grown <= may, "TREE-1", || {
                    format!(
                        "{pid} is {grown} of {} over its limit by {}, and may be {may}",
                        amount.word(),
                        fact.name()
                    )
                })?;
                if let Some(ledger) = self.ledgers.get_mut(&pid).filter(|_| over > 0) {
                    *ledger.spending.overshot.entry(amount).or_default() += over;
                    self.tally.count("limits overshot by a call");
                }
            }
        }
        Ok(())
    }

    /// All that belongs to a tree, added up.
    fn whole_tree(&mut self, pid: Pid, running: &Running) -> Held {
        let Some(root) = self.ledgers.get(&pid).map(|ledger| ledger.root) else {
            return Ok(());
        };
        let of_root = if root == pid {
            Some(running)
        } else {
            self.running.get(&root)
        };
        let Some(limits) = of_root.map(|root| *root.state.budget().limits()) else {
            return Ok(());
        };
        // One that outlives its parent for a moment is on its way to its end, and stands in
        // nobody's account.
        let table = &self.supervisor.table;
        let mut living = if table.lives(root) {
            table.tree(root)
        } else {
            Vec::new()
        };
        living.retain(|pid| !table.is_doomed(*pid));
        for amount in Amount::SHARED {
            let Some(limit) = limits.limit(amount) else {
                continue;
            };
            let of_tree = self
                .ledgers
                .iter()
                .filter(|(_, ledger)| ledger.root == root);
            let (mut used, mut overshot) = (0, 0);
            for (pid, ledger) in of_tree {
                let counts = amount != Amount::ResidentBytes || living.contains(pid);
                used += if counts {
                    ledger.spending.total(amount)
                } else {
                    0
                };
                overshot += ledger.spending.overshot.get(&amount).copied().unwrap_or(0);
            }
            let used = if amount == Amount::Processes {
                living.len() as u64
            } else {
                used
            };
            ensure(used <= limit + overshot, "TREE-1", || {
                format!(
                    "the tree of {root} uses {used} of {limit} {}, {overshot} of it overshot",
                    amount.word()
                )
            })?;
        }
        self.tally.count("trees added up");
        Ok(())
    }
}

/// What a process used itself.
fn own(account: &Account, amount: Amount) -> u64 {
    match amount {
        Amount::ResidentBytes => account.used(amount),
        _ => of(&account.own_usage(), amount),
    }
}

fn of(usage: &Usage, amount: Amount) -> u64 {
    match amount {
        Amount::InputTokens => usage.all_input_tokens(),
        Amount::OutputTokens => usage.output_tokens,
        Amount::Cost => usage.cost_nanos,
        Amount::WallTime | Amount::Processes | Amount::Depth | Amount::ResidentBytes => 0,
    }
}

/// By how much a child that comes back used more than its share.
fn overshot_by_child(account: &Account, fact: &Fact, amount: Amount) -> u64 {
    let Fact::Budget(Change::Returned {
        call,
        index,
        spent: Some(spent),
    }) = fact
    else {
        return 0;
    };
    let share = account
        .share(*call, *index)
        .and_then(|share| share.limit(amount))
        .unwrap_or(0);
    of(spent, amount).saturating_sub(share)
}
