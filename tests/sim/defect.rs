//! Mistakes that the world can be told to make, to show that the invariants notice: each is what a
//! broken keeper would do.

/// A keeper of an invariant, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// What came of a tool is applied, and journalled, a second time.
    AppliesCompletionsTwice,
    /// A tool that was in flight when the kernel died is started once more.
    StartsAToolAgain,
    /// The store loses the last fact that it acknowledged.
    ForgetsACommittedFact,
    /// The store lets go of a content that a journal refers to.
    ForgetsAContent,
    /// The first fact of a journal is passed over when it is read.
    SkipsAFactOnReplay,
    /// An effect is performed before its facts are durable.
    ActsBeforeItIsDurable,
    /// A message that was sent is sent otherwise the next time.
    RewritesHistory,
    /// A tool use stays without its answer.
    ForgetsAnAnswer,
    /// A forked child starts without the beginning of its parent's conversation.
    ChildStartsElsewhere,
    /// What a child opens stands in its parent's table as well.
    LeaksIntoTheParent,
    /// A new descriptor gets the number of the one before it.
    GivesANumberAgain,
    /// A content changes under a descriptor.
    ChangesAContent,
    /// A descriptor of another process comes into a table.
    MixesUpTables,
    /// An operation on a temporary file is done a second time.
    DoesAnOperationTwice,
    /// A write counts as one from the newest version.
    WritesFromAnOldVersion,
    /// A new temporary file gets the number of an old one.
    UsesAFileNumberAgain,
    /// What came of a call never reaches the process.
    LosesACompletion,
    /// A receiver does not remember which messages it has.
    ForgetsWhatItHeard,
    /// An alarm that has fired stays due.
    ForgetsThatAnAlarmFired,
    /// Children are made, and their shares are not reserved.
    ForgetsAReservation,
    /// A page is served without its last character.
    LosesTheEndOfAPage,
    /// An answer is written without escapes.
    WritesAnswersUnescaped,
    /// The oldest message that a compaction moves away is left out of its descriptor.
    LosesACompactedMessage,
    /// A process that comes back takes what it holds for approved.
    TakesHeldForApproved,
    /// An ended process gets the message that opens it, and not the fact that does.
    OpensWithoutAFact,
    /// A process that comes back forgets what it did beyond a point that it went back to.
    ForgetsWhatLiesBeyond,
    /// A process that comes back is not told that one above it is paused at a limit.
    ForgetsAPauseAbove,
    /// A process that comes back is not paused any more, though no limit was raised.
    ForgetsItsPause,
    /// A branch that has not won goes on as if it had.
    ForgetsThatItIsSpeculative,
    /// A process goes on though a label of its tree has used up its budget.
    LooksAtNoLabel,
    /// What a tree used is counted for its labels again when the kernel comes back.
    CountsForLabelsAgain,
}

impl Defect {
    /// All, each with the invariant that must be reported.
    pub(crate) const ALL: [(Self, &'static str); 31] = [
        (Self::AppliesCompletionsTwice, "CALL-1"),
        (Self::StartsAToolAgain, "CALL-2"),
        (Self::ForgetsACommittedFact, "DUR-1"),
        (Self::ForgetsAContent, "DUR-3"),
        (Self::SkipsAFactOnReplay, "DUR-2"),
        (Self::ActsBeforeItIsDurable, "DUR-1"),
        (Self::RewritesHistory, "HIST-1"),
        (Self::ForgetsAnAnswer, "HISTORY"),
        (Self::ChildStartsElsewhere, "FORK-2"),
        (Self::LeaksIntoTheParent, "FORK-1"),
        (Self::GivesANumberAgain, "FD-1"),
        (Self::ChangesAContent, "FD-2"),
        (Self::MixesUpTables, "FD-3"),
        (Self::DoesAnOperationTwice, "TEMP-1"),
        (Self::WritesFromAnOldVersion, "TEMP-2"),
        (Self::UsesAFileNumberAgain, "TEMP-3"),
        (Self::LosesACompletion, "PROGRESS"),
        (Self::ForgetsWhatItHeard, "MAIL-1"),
        (Self::ForgetsThatAnAlarmFired, "ALARM-1"),
        (Self::ForgetsAReservation, "TREE-1"),
        (Self::LosesTheEndOfAPage, "PAGE-1"),
        (Self::WritesAnswersUnescaped, "XML-1"),
        (Self::LosesACompactedMessage, "COMPACT-1"),
        (Self::TakesHeldForApproved, "HELD-1"),
        (Self::OpensWithoutAFact, "REOPEN-1"),
        (Self::ForgetsWhatLiesBeyond, "FENCE-1"),
        (Self::ForgetsAPauseAbove, "PAUSE-1"),
        (Self::ForgetsItsPause, "PAUSE-1"),
        (Self::ForgetsThatItIsSpeculative, "SPEC-1"),
        (Self::LooksAtNoLabel, "LABEL-1"),
        (Self::CountsForLabelsAgain, "LABEL-1"),
    ];
}
