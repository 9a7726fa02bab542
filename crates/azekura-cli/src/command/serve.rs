//! `serve`: the server, from its configuration to its end.
//!
//! The configuration is checked first, then addresses are bound, then the data is opened; each can fail without side
//! effects. It prints its addresses, the data file, the durability, and how to stop it. SIGTERM and SIGINT end it in order,
//! SIGHUP reloads the configuration. The log reports events meanwhile.
//! It does not know the protocol.

use std::path::{Path, PathBuf};

use azekura::error::Error;
use azekura::{Kind, Result};
use azekura_bench::threads::start_in;
use azekura_server::Server;
use azekura_server::config::{
    Address, Config, DurabilityLevel, Engine, LogFormat, RawConfig, Reloaded,
};
use azekura_server::net::{Control, Listeners};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Outcome;
use crate::output::note;
use crate::output::{Output, counted};
use crate::trace;

/// Descriptors besides those of connections and of threads: the file, listeners, guests of the page.
const OWN_DESCRIPTORS: u64 = 100;

/// Serve records to memcached clients; without options from a file, to this machine
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// A configuration file in TOML, with the names of the other options; an option replaces its value
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    stated: RawConfig,
}

impl Serve {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let path = self.config.as_deref();
        // What the configuration names is a part of it, if it can be read at all.
        let read = Config::read(path, self.stated.clone());
        let judged = read.and_then(|config| match Server::check(&config) {
            Err(error) if error.kind() == Kind::Invalid => Err(error),
            _ => Ok(config),
        });
        let config = match judged {
            Ok(config) => config,
            Err(error) => {
                note!("azekura: {error}");
                return Ok(Outcome::Misunderstood);
            }
        };
        // From here on a signal waits to be looked at, so none is lost between opening and serving.
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|e| Error::io("cannot listen to signals", e))?;
        trace::listen(config.log_level, config.log);
        make_room(&config);
        let handed = listenfd::ListenFd::from_env();
        // A socket that was handed over is plain TCP or a unix socket: TLS must not be dropped silently.
        let asks_more = |at: &Address| matches!(at, Address::Tls(_) | Address::Udp(_));
        if handed.len() > 0 && config.listen.iter().any(asks_more) {
            note!(
                "azekura: sockets were handed over, which replace `listen`, but `listen` has TLS or UDP: listen without them, or let no service manager open the sockets"
            );
            return Ok(Outcome::Misunderstood);
        }
        let mut listeners = listeners(&config, handed)?;
        let control = Control::new(config.limits.clone())?;
        let server = Server::open(&config, &control)?;
        // A program that reads the announcement may connect at once.
        listeners.begin()?;
        announce(&config, &listeners, &server, out)?;
        // Who reads events by a program learns from them when it began and ended.
        let is_told = config.log == LogFormat::Json;
        if is_told {
            let at = listeners.described().join(" ");
            tracing::info!(at, records = server.service().engine().count(), "serving");
        }
        let handle = signals.handle();
        let served = std::thread::scope(|scope| {
            let waits = start_in(scope, || {
                for signal in signals.forever() {
                    if signal == SIGHUP {
                        reload(&server, path, &self.stated);
                    } else {
                        control.stop();
                    }
                }
            });
            let served = waits.and_then(|_| server.serve(listeners));
            handle.close();
            served
        });
        let closed = server.close();
        served?;
        closed?;
        if is_told {
            tracing::info!("stopped");
        }
        out.line_now(match config.engine {
            Engine::Hash | Engine::Tree => {
                "azekura: stopped; every acknowledged write is on the device"
            }
            _ => "azekura: stopped; what was in memory is gone",
        })?;
        Ok(Outcome::Yes)
    }
}

/// The sockets a service manager handed over, or those of the configuration.
fn listeners(config: &Config, mut handed: listenfd::ListenFd) -> Result<Listeners> {
    if handed.len() == 0 {
        return Server::listen(config);
    }
    let mut listeners = Listeners::new();
    if let Some(address) = config.metrics {
        listeners.metrics(address)?;
    }
    let refused = |e| {
        Error::io("cannot take over a socket", e)
            .remedy("only stream sockets of TCP and unix that listen can be taken over")
    };
    for index in 0..handed.len() {
        let socket = match handed.take_tcp_listener(index) {
            Ok(listener) => listener.map(Into::into),
            Err(_) => handed
                .take_unix_listener(index)
                .map_err(refused)?
                .map(Into::into),
        };
        if let Some(socket) = socket {
            listeners.adopt(socket)?;
        }
    }
    Ok(listeners)
}

/// Raises the limit of descriptors to one for each connection, and some for itself; warns if the system refuses.
fn make_room(config: &Config) {
    let own = OWN_DESCRIPTORS + 2 * config.threads as u64;
    let limits = &config.limits;
    let connections = limits
        .connections_max
        .saturating_add(limits.operator_connections);
    let wanted = connections.saturating_add(own);
    let limit = getrlimit(Resource::Nofile);
    let room = limit.current.unwrap_or(u64::MAX);
    if room >= wanted {
        return;
    }
    let most = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    let current = Some(most.max(room));
    let raised = setrlimit(Resource::Nofile, Rlimit { current, ..limit }).is_ok();
    if !raised || most < wanted {
        tracing::warn!(
            wanted,
            allowed = if raised { most } else { room },
            "the system allows fewer descriptors than connections-max needs: raise `ulimit -Hn` or LimitNOFILE"
        );
    }
}

fn reload(server: &Server, path: Option<&Path>, stated: &RawConfig) {
    let reloaded = Config::read(path, stated.clone()).and_then(|config| {
        let reloaded = server.reload(&config)?;
        trace::listen(config.log_level, config.log);
        make_room(&config);
        Ok(reloaded)
    });
    match reloaded {
        Ok(Reloaded {
            taken_over,
            needs_restart,
        }) => {
            let words = |names: &[&str]| match names {
                [] => "nothing".to_owned(),
                names => names.join(", "),
            };
            tracing::info!("reloaded {}", words(&taken_over));
            if !needs_restart.is_empty() {
                tracing::warn!(
                    "unchanged until a restart: {}; the server continues with what it was started with",
                    words(&needs_restart)
                );
            }
        }
        Err(error) => tracing::error!("reload failed, nothing changed: {error}"),
    }
}

fn announce(
    config: &Config,
    listeners: &Listeners,
    server: &Server,
    out: &mut Output<'_>,
) -> Result<()> {
    for at in listeners.described() {
        out.line(format_args!("listens on {at}"))?;
    }
    if let Some(at) = listeners.metrics_address() {
        out.line(format_args!("status page: http://{at}/"))?;
    }
    let count = server.service().engine().count();
    let records = counted(count, "record", "records");
    let most = config.memory_max.or(config.capacity);
    let most = most.map_or_else(String::new, |max| {
        format!(", {} at most", azekura::error::size(max))
    });
    match config.store() {
        Some(path) => out.line(format_args!(
            "data file: {}: {records}{most}",
            path.display()
        ))?,
        None => out.line(format_args!("data in memory{most}"))?,
    }
    out.line(match (config.engine, config.durability) {
        (Engine::Hash | Engine::Tree, DurabilityLevel::Power) => "durability power: every acknowledged write survives loss of power",
        (Engine::Hash | Engine::Tree, _) if config.sync_interval_ms > 0 => {
            "durability process: every acknowledged write survives a killed process, and loss of power after the next sync (--sync-interval)"
        }
        (Engine::Hash | Engine::Tree, _) => {
            "durability process: every acknowledged write survives a killed process, and loss of power after the next sync (--durability power: always)"
        }
        _ => "durability none: records are lost when this process ends",
    })?;
    out.line_now(match config.engine {
        Engine::Hash | Engine::Tree => {
            "stop it by Ctrl-C or SIGTERM: it answers what has arrived, syncs and closes"
        }
        _ => "stop it by Ctrl-C or SIGTERM: it answers what has arrived",
    })?;
    if config.passwords.is_some() && listeners.reach_beyond(false) {
        tracing::warn!(
            "passwords cross the network unencrypted: let clients of other machines connect by tls: only"
        );
    }
    if listeners.reach_beyond(!has_authority(config)) && config.passwords.is_none() {
        note!(
            "azekura: warning: no authentication: everyone who can connect can read and change everything; use --passwords"
        );
    }
    Ok(())
}

fn has_authority(config: &Config) -> bool {
    let certificate = config.certificate.as_ref();
    certificate.is_some_and(|certificate| certificate.client_authority.is_some())
}
