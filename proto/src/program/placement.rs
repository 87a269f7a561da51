//! The table `[placement]`: where a process may run, if there are several nodes.

use super::Section;

/// `[placement]`: what a node must have to run the process and all processes below it. A program that
/// runs without nodes ignores it.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct PlacementSection {
    /// Labels of nodes, such as `gpu` or `repo:main`: the process runs only where a node has all of
    /// them. Only those of the program that is started count.
    #[key(max_items = 16)]
    pub needs: Vec<String>,
}
