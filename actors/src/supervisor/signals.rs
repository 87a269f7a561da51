//! Signals to a whole tree.

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::Pid;
use tokio::sync::oneshot;

use super::Supervisor;
use super::entry::Run;
use crate::error::KernelError;
use crate::process::{Delivery, Received};

impl Supervisor {
    /// Tells a process and all below it, parents first. `received` hears when all of them have it durably; one that ends in
    /// the meantime needs none. Children that are on their way while their tree is stopped are born stopped.
    pub(super) fn signal_tree(&mut self, root: Pid, signal: Signal, received: Received) {
        let told = match self.table.run_of(root) {
            None => Err(self.or_lost(KernelError::UnknownProcess(root))),
            Some(Run::Ended) => Err(KernelError::Ended(root)),
            Some(_) => Ok(()),
        };
        if let Err(error) = told {
            // Who no longer waits has dropped its side.
            return drop(received.send(Err(error)));
        }
        let mut durable = Vec::new();
        for pid in self.table.tree(root) {
            if let Signal::Stop | Signal::Continue = signal {
                self.table.halt(pid, signal == Signal::Stop);
            }
            let (received, is_durable) = oneshot::channel();
            durable.push(is_durable);
            self.deliver(pid, Delivery { received: Some(received), ..Delivery::internal(Input::Signal(signal)) });
        }
        tokio::spawn(async move {
            let mut result = Ok(());
            for is_durable in durable {
                match is_durable.await {
                    Ok(Err(KernelError::Ended(_))) | Ok(Ok(())) | Err(_) => {}
                    Ok(Err(error)) => result = Err(error),
                }
            }
            let _ = received.send(result);
        });
    }
}
