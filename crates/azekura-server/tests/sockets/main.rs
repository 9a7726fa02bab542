//! A server over real sockets: every transport, clients of every manner, the start and the end.
//!
//! Each test runs a server of its own in this process, on a free port of the loopback or a socket in a folder that
//! disappears. What is promised of memory is measured of this process. It knows the protocol only as far as to ask.

mod encrypted;
mod end;
mod figures;
mod hostile;
mod moving;
mod running;
mod transports;
mod watch;
mod watchers;
