//! Why an agent does not do what it is asked to.

use thiserror::Error;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why an agent refuses a request or ends a flow. Both protocols carry its number; new ones are added at the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* #[error($text)] $name,)*
        }

        impl Refusal {
            /// All of them, by number.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$name),*];

            /// Its number on the wire.
            pub fn code(self) -> u16 {
                match self { $(Refusal::$name => $code),* }
            }

            /// The refusal of this number. One that only a later version knows is [`Refusal::Failed`].
            pub fn of(code: u16) -> Refusal {
                match code { $($code => Refusal::$name,)* _ => Refusal::Failed }
            }
        }
    };
}

refusals! {
    /// A frame breaks the protocol; the connection ends.
    Malformed = 1, "the frame breaks the protocol";
    /// No common version of the protocol.
    Version = 2, "no common version of the protocol";
    /// The application exists with another token, or belongs to another user.
    NotYours = 3, "the application has another token or another owner";
    /// Nothing is registered under this name.
    Unknown = 4, "no such application, output or partition";
    /// The path is outside the agent's roots, or leads through a link.
    OutsideRoots = 5, "the path is not beneath a root of the agent, or leads through a link";
    /// The file is not a regular file of the user who names it.
    NotOwner = 6, "the file does not belong to the user who names it";
    /// The file changed after it was registered.
    Changed = 7, "the file is not what it was when it was registered";
    /// The file ends before the range does.
    Truncated = 8, "the file ends before the range does";
    /// The index file makes no sense.
    BadIndex = 9, "the index cannot be understood";
    /// A quota of the user is used up.
    Quota = 10, "a quota of the user is used up";
    /// The agent does not know this host.
    UnknownHost = 11, "the agent does not know this host";
    /// The host's agent cannot be reached.
    Unreachable = 12, "the agent of that host cannot be reached";
    /// The disk failed.
    Io = 13, "the file cannot be read";
    /// The agent is about to stop.
    Stopping = 14, "the agent is about to stop";
    /// The name is in use already.
    Exists = 15, "the name is in use";
    /// Anything else, in the text beside it.
    Failed = 16, "failed";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_one_refusal_and_unknown_ones_are_failures() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::of(refusal.code()), *refusal);
        }
        assert_eq!(Refusal::of(9_999), Refusal::Failed);
    }
}
