//! The answers as JSON. The names of fields are stable: the command line prints the same, and new
//! fields may be added.

mod alarm;
mod call;
mod conversation;
mod descriptor;
mod diff;
mod effect;
mod event;
mod label;
mod process;
mod process_table;
mod store;
mod usage;

pub use self::alarm::AlarmView;
pub use self::call::{
    CallView, PendingView, QuestionView, RepeatsView, ServerQuestionView, UnreadableView,
    WantedView,
};
pub use self::conversation::{
    BlockView, ConversationView, MessageView, ServerOutputView, ServerToolView, ToolView,
};
pub use self::descriptor::{DescriptorLine, LinesView, MatchView, PageView, SearchView};
pub use self::diff::{
    DescriptorDifferenceView, DescriptorSummaryView, DiffView, MessageSummaryView, Sides,
};
pub use self::effect::{EffectView, EffectsView};
pub use self::event::{EventView, FactEventView};
pub use self::label::{
    LabelView, UsedOf, describe_reached, describe_usage, describe_used_up, find_used_up,
};
pub(crate) use self::process::priority;
pub use self::process::{
    AmountView, OpenCallView, PausedView, ProcessDetail, ProcessLine, ProcessPage,
};
pub use self::process_table::{ProcessTable, is_acknowledged_loss};
pub use self::store::{CheckpointView, FactLine, FactPage, KernelView, MemberView};
pub use self::usage::{UsageGroup, UsageView};
