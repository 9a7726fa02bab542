//! `serve`: the server, from its configuration to its end.
//!
//! What it is told is checked first, then addresses are taken, then the data is opened; each can fail, with nothing left
//! behind. It prints where clients come, where records lie, what survives what, and how to stop it. SIGTERM and SIGINT
//! end it in order, SIGHUP reads the configuration again. What happens meanwhile is told by events.
//! It does not know the protocol.

use std::path::{Path, PathBuf};

use azekura::error::Error;
use azekura::{Kind, Result};
use azekura_bench::threads::start_in;
use azekura_server::Server;
use azekura_server::config::{Address, Config, Engine, LogFormat, RawConfig, Reloaded, Survives};
use azekura_server::net::{Control, Listeners};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Outcome;
use crate::output::note;
use crate::output::{Output, counted};
use crate::trace;

/// Descriptors beside those of connections and of threads: the file, listeners, guests of the page.
const OWN_DESCRIPTORS: u64 = 100;

/// Serve records to memcached clients; without options from a file, to this machine
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// A file in TOML that says what the other options say, by the same names; an option replaces what it says
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    said: RawConfig,
}

impl Serve {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let path = self.config.as_deref();
        // What the configuration names is a part of it, if it can be read at all.
        let read = Config::read(path, self.said.clone());
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
        // A socket that was handed over is plain TCP or a unix socket: whoever asked for more must not get less unsaid.
        let asks_more = |at: &Address| matches!(at, Address::Tls(_) | Address::Udp(_));
        if handed.len() > 0 && config.listen.iter().any(asks_more) {
            note!(
                "azekura: sockets were handed over, which replace `listen`, but it asks for TLS or UDP: listen without them, or let no service manager open the sockets"
            );
            return Ok(Outcome::Misunderstood);
        }
        let mut listeners = listeners(&config, handed)?;
        let control = Control::new(config.limits.clone())?;
        let server = Server::open(&config, &control)?;
        // Whoever reads the announcement may connect at once.
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
                        reload(&server, path, &self.said);
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
            Engine::Hash => "azekura: stopped; what was answered is on the device",
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

/// Lets this process have a descriptor for each connection, and some for itself; tells if the system does not.
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
            "the system allows fewer descriptors than connections-max asks for: raise `ulimit -Hn` or LimitNOFILE"
        );
    }
}

fn reload(server: &Server, path: Option<&Path>, said: &RawConfig) {
    let reloaded = Config::read(path, said.clone()).and_then(|config| {
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
            tracing::info!("took over {}", words(&taken_over));
            if !needs_restart.is_empty() {
                tracing::warn!(
                    "unchanged until a restart: {}; the server goes on with what it was started with",
                    words(&needs_restart)
                );
            }
        }
        Err(error) => tracing::error!("nothing was taken over: {error}"),
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
        out.line(format_args!("shows itself at http://{at}/"))?;
    }
    let count = server.service().engine().count();
    let records = counted(count, "record", "records");
    let most = config.memory_max.or(config.capacity);
    let most = most.map_or_else(String::new, |max| {
        format!(", {} at most", azekura::error::size(max))
    });
    match config.store() {
        Some(path) => out.line(format_args!(
            "stores in {}: {records}{most}",
            path.display()
        ))?,
        None => out.line(format_args!("stores in memory{most}"))?,
    }
    out.line(match (config.engine, config.durability) {
        (Engine::Hash, Survives::Power) => "what was answered survives loss of power",
        (Engine::Hash, _) if config.sync_interval_ms > 0 => {
            "what was answered survives a killed process, and loss of power once it was synced (--sync-interval)"
        }
        (Engine::Hash, _) => {
            "what was answered survives a killed process, and loss of power once it was synced (--durability power: always)"
        }
        _ => "nothing survives the end of this process",
    })?;
    out.line_now(match config.engine {
        Engine::Hash => {
            "stop it by Ctrl-C or SIGTERM: it answers what has arrived, syncs and closes"
        }
        _ => "stop it by Ctrl-C or SIGTERM: it answers what has arrived",
    })?;
    if config.passwords.is_some() && listeners.reach_beyond(false) {
        tracing::warn!(
            "passwords cross the network as they are: let clients from beyond this machine come by tls: only"
        );
    }
    if listeners.reach_beyond(!has_authority(config)) && config.passwords.is_none() {
        note!(
            "azekura: whoever reaches these addresses may read and change everything; --passwords lets in who is known"
        );
    }
    Ok(())
}

fn has_authority(config: &Config) -> bool {
    let certificate = config.certificate.as_ref();
    certificate.is_some_and(|certificate| certificate.client_authority.is_some())
}
