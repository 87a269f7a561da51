//! Which node should own a shard: rendezvous hashing, a pure function.
//!
//! Every node computes the same owner from the same list of live nodes. Each pair of a node and a
//! shard has a weight, and the eligible node with the highest weight owns the shard. So a node that
//! joins takes shards only for itself, and of a node that leaves only its own shards move.
//!
//! A shard has *needs*, a set of labels, for life. It is eligible for the nodes that have all of
//! them. Process trees with needs are started in shards with exactly these needs, so that wherever
//! such a shard moves, its trees find what they need; without such a node it has no owner, and its
//! trees wait.

use std::collections::BTreeSet;

use dormouse_postgres::ShardId;

/// A set of labels, such as `gpu` and `repo:main`.
pub type Labels = BTreeSet<String>;

/// A live node, as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The id of this run of the node. It decides between nodes of one name.
    pub id: String,
    /// The name of the node, which stays over restarts, so that its shards return to it.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
}

/// The node that should own a shard with these needs; `None` if no node is eligible. O(nodes).
#[must_use]
pub fn owner<'n>(
    shard: ShardId,
    needs: &Labels,
    nodes: impl IntoIterator<Item = &'n Candidate>,
) -> Option<&'n Candidate> {
    let eligible = nodes
        .into_iter()
        .filter(|node| needs.is_subset(&node.labels));
    eligible.max_by_key(|node| (weight(&node.name, &shard.0.to_le_bytes()), &node.id))
}

/// The shard of a start with this request id, among those with the needs of its program. The same
/// for each attempt, as long as no shards are added. O(shards).
#[must_use]
pub fn shard_of_request(
    request: &str,
    shards: impl IntoIterator<Item = ShardId>,
) -> Option<ShardId> {
    let shards = shards.into_iter();
    shards.max_by_key(|shard| (weight(request, &shard.0.to_le_bytes()), *shard))
}

/// The node that a node watches: the one before it in a ring of all live nodes; `None` if it is
/// alone. So whichever nodes end, one that is left watches one of them, and all read again once it
/// has seen that. O(nodes).
pub(crate) fn watched_by<'n>(id: &str, nodes: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let (mut before, mut last) = (None, None);
    for node in nodes.into_iter().filter(|node| *node != id) {
        last = last.max(Some(node));
        if node < id {
            before = before.max(Some(node));
        }
    }
    before.or(last).map(str::to_owned)
}

/// The weight of a pair. Equal in each version of the program: nodes of two versions run side by
/// side.
fn weight(name: &str, number: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.as_bytes()).update(&[0]).update(number);
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[&str]) -> Labels {
        labels.iter().map(|&label| label.to_owned()).collect()
    }

    fn node(name: &str, its: &[&str]) -> Candidate {
        Candidate {
            id: format!("{name}#1"),
            name: name.to_owned(),
            labels: labels(its),
        }
    }

    fn owners(nodes: &[Candidate], needs: &[&str]) -> Vec<Option<String>> {
        let shards = (0..1024).map(ShardId);
        let owner_of = |shard| Some(owner(shard, &labels(needs), nodes)?.name.clone());
        shards.map(owner_of).collect()
    }

    #[test]
    fn whichever_nodes_end_one_that_is_left_watches_one_of_them() {
        let nodes = ["a", "b", "c", "d", "e"];
        for ended in 1_u32..(1 << nodes.len()) - 1 {
            let has_ended = |node: &str| {
                nodes
                    .iter()
                    .position(|it| *it == node)
                    .is_some_and(|at| ended & (1 << at) != 0)
            };
            let left = nodes.iter().filter(|node| !has_ended(node));
            let watched = left.filter_map(|node| watched_by(node, nodes));
            assert!(
                watched.into_iter().any(|node| has_ended(&node)),
                "{ended:b}"
            );
        }
        assert_eq!(watched_by("a", ["a"]), None);
    }

    #[test]
    fn only_shards_of_the_node_that_comes_or_goes_move() {
        let mut nodes = vec![node("a", &[]), node("b", &[]), node("c", &[])];
        let with_three = owners(&nodes, &[]);
        nodes.push(node("d", &[]));
        let with_four = owners(&nodes, &[]);
        for (before, after) in with_three.iter().zip(&with_four) {
            assert!(before == after || after.as_deref() == Some("d"));
        }
        let moved = with_four
            .iter()
            .filter(|owner| owner.as_deref() == Some("d"));
        let moved = moved.count();
        assert!(
            (192..320).contains(&moved),
            "{moved} of 1024 is about a fourth"
        );
        // Back again, whatever the order of the list.
        nodes.pop();
        nodes.reverse();
        assert_eq!(owners(&nodes, &[]), with_three);
    }

    #[test]
    fn a_node_that_starts_again_gets_its_shards_back() {
        let nodes = [node("a", &[]), node("b", &[])];
        let again = Candidate {
            id: "a#2".to_owned(),
            ..node("a", &[])
        };
        assert_eq!(
            owners(&nodes, &[]),
            owners(&[again.clone(), node("b", &[])], &[])
        );
        // While the earlier run still counts as live, the later id has them.
        let both = [node("a", &[]), again];
        for shard in (0..16).map(ShardId) {
            assert_eq!(owner(shard, &labels(&[]), &both).unwrap().id, "a#2");
        }
    }

    #[test]
    fn a_shard_with_needs_has_an_owner_with_all_of_them_or_none() {
        let nodes = [
            node("plain", &[]),
            node("gpu", &["gpu"]),
            node("both", &["gpu", "repo:main"]),
        ];
        let distinct = |needs: &[&str]| {
            let owners = owners(&nodes, needs);
            owners.into_iter().collect::<BTreeSet<_>>()
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(distinct(&[]).len(), 3);
        assert_eq!(distinct(&["gpu"]), [some("both"), some("gpu")].into());
        assert_eq!(distinct(&["gpu", "repo:main"]), [some("both")].into());
        assert_eq!(distinct(&["tpu"]), [None].into());
    }

    #[test]
    fn a_request_is_for_the_same_shard_each_time_and_requests_are_spread() {
        let shard = |request: &str| shard_of_request(request, (0..8).map(ShardId));
        let chosen: BTreeSet<_> = (0..200).map(|n| shard(&n.to_string())).collect();
        assert_eq!(chosen.len(), 8);
        assert_eq!(shard("x"), shard_of_request("x", (0..8).rev().map(ShardId)));
        assert_eq!(shard_of_request("x", []), None);
    }
}
