//! Answers the questions of tool servers to the user.

use std::sync::Arc;

use serde_json::Value;

use super::kernel::Kernel;
use crate::error::KernelError;
use crate::server_questions::{ServerQuestionError, ServerQuestions};

impl Kernel {
    /// Answers a question of a tool server, whose call goes on. For a question that asks for no
    /// value ([`WantedAnswer::Visit`]), the value is not used.
    ///
    /// # Errors
    /// [`ServerQuestionError`]: no such question waits, or its schema does not accept the value.
    ///
    /// [`WantedAnswer::Visit`]: crate::WantedAnswer::Visit
    pub fn answer_server(&self, question: u64, value: Value) -> Result<(), KernelError> {
        Ok(self.questions_of(question)?.accept(question, value)?)
    }

    /// Tells a tool server that the user does not answer its question.
    ///
    /// # Errors
    /// [`ServerQuestionError::Closed`] if no such question waits.
    pub fn decline_server(&self, question: u64) -> Result<(), KernelError> {
        Ok(self.questions_of(question)?.decline(question)?)
    }

    /// The open questions, of which `question` should be one. A kernel that was built without
    /// `server_questions` has none.
    fn questions_of(&self, question: u64) -> Result<&Arc<ServerQuestions>, ServerQuestionError> {
        let client = self.context.server_questions.as_ref();
        client
            .map(|client| &client.0)
            .ok_or(ServerQuestionError::Closed(question))
    }
}
