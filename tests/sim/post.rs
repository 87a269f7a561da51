//! The post of the simulated kernel, as `actors/src/process/send_message.rs` and
//! `actors/src/supervisor/mail.rs` are: a message is sent until its receiver has said something,
//! and the receiver's word is its sender's answer.
//!
//! Messages overtake each other, come twice, and lose their receipts; what the receiver has when it
//! stops is sent again.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_kernel::process::{Completion, Input};
use dormouse_kernel::syscall::PendingMessage;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Address, ReachableProcess};
use dormouse_proto::tool::Answer;

use crate::event::{Event, SupervisorMessage};
use crate::process::Running;
use crate::world::World;

const ATTEMPTS: u32 = 6;

/// A message on its way, and where its receipt goes.
#[derive(Clone)]
pub(crate) struct Post {
    from: Pid,
    life: u64,
    task: u64,
    call: CallId,
    acked_below: u32,
    pending: PendingMessage,
    attempt: u32,
    /// The receiver, and the life of it that has the message.
    at: Option<(Pid, Option<u64>)>,
}

/// Messages whose receipts are waited for, by request_id.
pub(crate) type Posts = BTreeMap<Arc<str>, Post>;

impl Post {
    /// Of its own for each time that the call is made: an earlier life's may still be on its way.
    fn request_id(&self) -> Arc<str> {
        format!("message:{}:{}:{}", self.from, self.call, self.task).into()
    }

    fn input(&self) -> Input {
        let Self {
            from,
            call,
            acked_below,
            pending,
            ..
        } = self;
        Input::Message {
            request_id: self.request_id(),
            from: *from,
            call: *call,
            acked_below: *acked_below,
            envelope: pending.envelope.clone(),
        }
    }
}

impl World {
    pub(crate) fn send_message(
        &mut self,
        running: &mut Running,
        call: CallId,
        acked_below: u32,
        pending: PendingMessage,
    ) {
        let (from, life, task) = (running.pid(), running.life, self.new_task(running, call));
        self.send_post(Post {
            from,
            life,
            task,
            call,
            acked_below,
            pending,
            attempt: 1,
            at: None,
        });
    }

    fn send_post(&mut self, post: Post) {
        let delay = self.delay() << (post.attempt - 1);
        self.schedule.after(
            delay,
            Event::Supervisor(SupervisorMessage::Post(Box::new(post))),
        );
    }

    /// Takes a message to its receiver; where there is none, the sender is told why.
    pub(crate) fn post(&mut self, mut post: Post) {
        match self.receiver(post.from, &post.pending.to) {
            Ok(to) => {
                post.at = Some((to, None));
                let input = post.input();
                self.posts.insert(post.request_id(), post);
                self.deliver_or_reopen(to, input);
            }
            Err(why) => self.receipt(&post, Answer::failed(why)),
        }
    }

    fn receiver(&self, from: Pid, to: &Address) -> Result<Pid, String> {
        let table = &self.supervisor.table;
        let pid = match to {
            Address::Parent => table
                .row(from)
                .and_then(|row| row.parent)
                .ok_or("This process has no parent.")?,
            Address::Process(pid) | Address::Correspondent(pid) => *pid,
            Address::Name(name) => table
                .named(name)
                .ok_or("There is no process of this name.")?,
        };
        if pid == from {
            return Err(format!("Process {pid} is this process itself."));
        }
        let row = table
            .row(pid)
            .filter(|row| row.name.is_some() || table.root(from) == table.root(pid));
        let row = row.ok_or_else(|| format!("There is no process {pid}."))?;
        // One of its own tree is opened again.
        if row.exit.is_none() || table.root(from) == table.root(pid) {
            Ok(pid)
        } else {
            Err(format!("Process {pid} has ended."))
        }
    }

    /// A life of a process has the message.
    pub(crate) fn note_post(&mut self, pid: Pid, life: u64, input: &Input) {
        if let Input::Message { request_id, .. } = input
            && let Some(post) = self.posts.get_mut(request_id)
        {
            post.at = Some((pid, Some(life)));
        }
    }

    /// The receiver gave its word: the sender hears it, or it is lost. What was kept may come once
    /// more, late.
    pub(crate) fn receipt_given(&mut self, request_id: &Arc<str>, answer: Answer) {
        let Some(post) = self.posts.remove(request_id) else {
            return;
        };
        if self.random.percent(6) {
            self.tally.count("receipts lost");
            return self.send_again(post);
        }
        if !answer.is_error
            && self.random.percent(6)
            && let Some((pid, _)) = post.at
        {
            self.tally.count("messages that came twice");
            let later = self.random.below(500);
            let input = Box::new(post.input());
            self.schedule.after(
                later,
                Event::Supervisor(SupervisorMessage::Deliver { pid, input }),
            );
        }
        self.receipt(&post, answer);
    }

    fn receipt(&mut self, post: &Post, receipt: Answer) {
        self.tally.count(if receipt.is_error {
            "messages refused"
        } else {
            "messages kept"
        });
        let delay = self.random.below(20);
        self.finish(
            post.from,
            post.life,
            post.call,
            post.task,
            delay,
            Completion::MessageSent(receipt),
        );
    }

    /// A receiver has stopped: what it had (in this life, or in any) and said nothing of is sent
    /// again.
    pub(crate) fn return_posts(&mut self, pid: Pid, life: Option<u64>) {
        let is_lost = |post: &Post| match post.at {
            Some((at, in_life)) => at == pid && (life.is_none() || in_life == life),
            None => false,
        };
        for post in self
            .posts
            .extract_if(.., |_, post| is_lost(post))
            .map(|(_, post)| post)
            .collect::<Vec<_>>()
        {
            self.send_again(post);
        }
    }

    fn send_again(&mut self, post: Post) {
        if !self.tasks.contains(&post.task) {
            return;
        }
        if post.attempt == ATTEMPTS {
            return self.receipt(
                &post,
                Answer::failed("Whether the other process got the message is unknown."),
            );
        }
        self.tally.count("messages sent again");
        self.send_post(Post {
            attempt: post.attempt + 1,
            at: None,
            ..post
        });
    }

    /// The processes of the tree, and those that have a name.
    pub(crate) fn neighbours(&self, of: Pid) -> Vec<ReachableProcess> {
        let table = &self.supervisor.table;
        let rows = table.living().into_iter().filter_map(|pid| table.row(pid));
        let rows = rows.filter(|row| row.name.is_some() || table.root(row.pid) == table.root(of));
        let neighbour = |row: &dormouse_proto::process::ProcessRow| ReachableProcess {
            pid: row.pid,
            parent: row.parent,
            program: row.program.clone(),
            name: row.name.clone(),
            status: "living",
        };
        rows.map(neighbour).collect()
    }
}
