//! The names of facts in event streams and listings.

use super::{
    AlarmFact, CallFact, ChildFact, ControlFact, DescriptorFact, Fact, MailFact, TurnFact,
};

impl<C: Clone> Fact<C> {
    /// The name in event streams and listings.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mail(fact) => fact.name(),
            Self::Turn(fact) => fact.name(),
            Self::Call(fact) => fact.name(),
            Self::Child(fact) => fact.name(),
            Self::Descriptor(DescriptorFact::Opened { .. }) => "descriptor_opened",
            Self::Descriptor(DescriptorFact::Annotated { .. }) => "descriptor_annotated",
            Self::Budget(change) => change.name(),
            Self::Control(fact) => fact.name(),
            Self::Restored { .. } => "restored",
            Self::Exited { .. } => "exited",
            Self::ToolsReplaced { .. } => "tools_replaced",
            Self::Noted { .. } => "noted",
            Self::Compacted { .. } => "compacted",
            Self::WentToCompacted { .. } => "went_to_compacted",
            Self::Alarm(fact) => fact.name(),
            Self::Reopened { .. } => "reopened",
        }
    }
}

impl MailFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "message_queued",
            Self::Received { .. } => "message_received",
            Self::Taken { .. } => "mail_taken",
        }
    }
}

impl TurnFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Began => "turn_began",
            Self::Ended { .. } => "turn_ended",
            Self::Interrupted { .. } => "interrupted",
            Self::WentTo { .. } => "went_to",
            Self::ResultSubmitted { .. } => "result_submitted",
            Self::ResultRefused => "result_refused",
            Self::ResultRequested { .. } => "result_requested",
        }
    }
}

impl CallFact {
    fn name(&self) -> &'static str {
        match self {
            Self::ModelCalled { .. } => "model_called",
            Self::ModelReplied { .. } => "model_replied",
            Self::ModelSwitched { .. } => "model_switched",
            Self::HostCalled { .. } => "host_called",
            Self::ToolCalled { .. } => "tool_called",
            Self::ToolReturned { .. } => "tool_returned",
            Self::Held { .. } => "held",
            Self::Approved { .. } => "approved",
            Self::Recalled { .. } => "effect_recalled",
            Self::EffectPolicySet { .. } => "effect_policy_set",
        }
    }
}

impl ChildFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "child_started",
            Self::Ended { .. } => "child_ended",
            Self::Reported { .. } => "child_reported",
            Self::Reopened { .. } => "child_reopened",
            Self::ReportedAgain { .. } => "child_reported_again",
        }
    }
}

impl ControlFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            // Listings have always had this name for it.
            Self::StoppedWithoutCalls => "frozen",
            Self::Continued => "continued",
            Self::Suspended => "suspended",
            Self::Released => "released",
            Self::SpeculationEnded => "speculation_ended",
        }
    }
}

impl AlarmFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Set { .. } => "alarm_set",
            Self::Cancelled { .. } => "alarm_cancelled",
            Self::Fired { .. } => "alarm_fired",
        }
    }
}
