//! Doing something inside another network namespace.
//!
//! A namespace belongs to a thread, and a socket to the namespace it was opened in, for ever. So a fresh thread goes there,
//! opens what is needed, and hands it back.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::{io, panic, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps its names, and where it did before `/run` was everywhere.
const NAMES: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// Runs `work` on a thread of its own inside the network namespace `name`, and returns what it returned.
///
/// Files and mounts stay those of the calling process; only what asks for the thread's network (sockets, interfaces, but not
/// `/sys`) is another. A panic of `work` goes on in the caller.
///
/// # Errors
/// No such namespace, a name that is a path, no right to enter it (`CAP_SYS_ADMIN`), or no more threads.
pub fn in_namespace<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    let namespace = open(name)?;
    thread::scope(|scope| {
        let inside = thread::Builder::new().name("in-namespace".to_owned()).spawn_scoped(scope, || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            io::Result::Ok(work())
        })?;
        inside.join().unwrap_or_else(|reason| panic::resume_unwind(reason))
    })
}

fn open(name: &str) -> io::Result<File> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        let what = format!("'{name}' is no name of a network namespace");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let [first, second] = NAMES.map(|folder| Path::new(folder).join(name));
    File::open(&first).or_else(|_| File::open(second)).map_err(|error| {
        io::Error::new(error.kind(), format!("network namespace '{name}' ({}): {error}", first.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_namespace_is_named() {
        let error = in_namespace("no-such-namespace", || ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("no-such-namespace"), "{error}");
    }

    #[test]
    fn name_is_no_path() {
        for name in ["", "../self", ".", "..", "a/b"] {
            assert_eq!(in_namespace(name, || ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
