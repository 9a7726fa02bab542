//! The real binary, run as a user runs it: arguments and standard input in; standard output, standard
//! error and the exit code out. One file per promise.
//! No test looks inside: another command reads what a file holds.

mod bad_input;
mod bench;
mod capacity;
mod care;
mod clients;
mod displaced;
mod formats;
mod full;
mod help;
mod object_care;
mod object_refusals;
mod objects;
mod program;
mod records;
mod remedies;
mod repair;
mod replaced;
mod secured;
mod serve;
mod shards;
mod skip;
mod stress;
mod threads;
mod tour;
mod tree;
mod watch;
