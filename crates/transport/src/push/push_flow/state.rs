//! Whether a flow may send, and what its receiver has assigned.

/// The states of the picture in [`super`].
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// Nothing was assigned yet.
    Opened,
    Sending(Assigned),
    /// The controller may pause a flow that is only opened.
    Paused {
        by: By,
        assigned: Option<Assigned>,
    },
}

/// The assignment in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    pub(super) version: u32,
    pub(super) receive_window: u32,
}

/// Reason of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Controller,
    /// The receiver's.
    Silence,
    Both,
}

impl State {
    #[inline]
    pub(super) fn assigned(&self) -> Option<Assigned> {
        match *self {
            State::Opened => None,
            State::Sending(assigned) => Some(assigned),
            State::Paused { assigned, .. } => assigned,
        }
    }

    pub(super) fn assign(&mut self, new: Assigned) {
        match self {
            State::Opened | State::Sending(_) => *self = State::Sending(new),
            State::Paused { assigned, .. } => *assigned = Some(new),
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self, State::Paused { .. })
    }

    pub(super) fn pause(&mut self, by: By) {
        let by = match *self {
            State::Paused { by: before, .. } if before != by => By::Both,
            _ => by,
        };
        *self = State::Paused { by, assigned: self.assigned() };
    }

    /// Ends one reason of the pause. False if it was not one.
    pub(super) fn resume(&mut self, who: By) -> bool {
        let State::Paused { by, assigned } = self else { return false };
        match (*by, who) {
            (By::Both, By::Controller) => *by = By::Silence,
            (By::Both, _) => *by = By::Controller,
            (by, who) if by == who => *self = assigned.map_or(State::Opened, State::Sending),
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_both_have_paused_sends_when_neither_does_any_more() {
        let mut state = State::Opened;
        state.pause(By::Controller);
        state.assign(Assigned { version: 1, receive_window: 10 });
        state.pause(By::Silence);
        assert!(state.resume(By::Controller) && state.is_paused() && !state.resume(By::Controller));
        state.assign(Assigned { version: 2, receive_window: 10 });
        assert!(state.resume(By::Silence));
        assert!(matches!(state, State::Sending(Assigned { version: 2, .. })));
        let mut early = State::Opened;
        early.pause(By::Controller);
        assert!(early.resume(By::Controller) && matches!(early, State::Opened));
    }
}
