//! The server of `client` and `top`: its address, the TLS files and the login, as flags.
//!
//! It promises that every file is read and checked before a connection is made. The connection is `azekura-wire`'s; it
//! does not know the requests.

use std::path::{Path, PathBuf};

use azekura::{Error, Kind, Result};
use azekura_wire::address::Reason;
use azekura_wire::{Address, Client, Trust};

use crate::output::note;
use crate::whole::unreadable;

/// Which server, and how the connection authenticates.
#[derive(clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// The server's address
    #[arg(
        long,
        alias = "server",
        global = true,
        value_name = "HOST:PORT|tls:HOST:PORT|unix:PATH",
        default_value = "127.0.0.1:11211"
    )]
    pub(crate) address: String,
    /// The certificate of a tls: server, or of its signer, in PEM
    #[arg(long, global = true, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// The client certificate for a tls: server, in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,
    /// The private key of the client certificate, in PEM
    #[arg(
        long = "key",
        global = true,
        value_name = "FILE",
        requires = "certificate"
    )]
    private_key: Option<PathBuf>,
    /// A file with a line name:password, for a server that requires authentication
    #[arg(long, global = true, value_name = "FILE")]
    login: Option<PathBuf>,
}

impl Server {
    /// Connects and authenticates.
    pub(crate) fn connect(&self) -> Result<Client> {
        let login = self.login.as_deref().map(login).transpose()?;
        let has_certificates = self.authority.is_some() || self.certificate.is_some();
        // A request for certificates is a request for TLS: nothing may go unencrypted, a password least of all.
        if has_certificates && !self.address.starts_with("tls:") {
            return Err(Error::new(
                Kind::Invalid,
                "certificates are of encrypted connections only",
            )
            .found(&self.address, "tls:HOST:PORT")
            .remedy("leave out --authority and --certificate, or put tls: before the address"));
        }
        let address = self.resolve()?;
        let trust = match &address {
            Address::Tls(host) => Some(Trust::new(
                host,
                self.authority.as_deref(),
                self.certificate.as_deref().zip(self.private_key.as_deref()),
            )?),
            _ => None,
        };
        let mut client = Client::connect(&address, &self.address, trust.as_ref())?;
        if let Some(words) = login {
            client.log_in(&words)?;
        }
        Ok(client)
    }

    fn resolve(&self) -> Result<Address> {
        let invalid = || {
            Error::new(Kind::Invalid, "no address of a server")
                .found(&self.address, "HOST:PORT, tls:HOST:PORT or unix:PATH")
        };
        let address: std::result::Result<Address, _> = self.address.parse();
        match address.map_err(|wrong| wrong.reason) {
            Ok(Address::Udp(_)) | Err(Reason::Form) => Err(invalid()),
            Ok(address) => Ok(address),
            Err(Reason::Port) => {
                let port = self.address.rsplit(':').next().unwrap_or_default();
                Err(
                    Error::new(Kind::Invalid, "the port of --address is out of range")
                        .found(port, "1 to 65535"),
                )
            }
            Err(Reason::Lookup(why)) => {
                let host = self.address.strip_prefix("tls:").unwrap_or(&self.address);
                let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
                Err(
                    Error::new(Kind::Io, format!("the host {host} is not found: {why}"))
                        .remedy("check the host in --address"),
                )
            }
        }
    }
}

/// The words `name password` of a file with a line `name:password`.
fn login(path: &Path) -> Result<Vec<u8>> {
    let text = std::fs::read(path).map_err(|e| unreadable("cannot read the login", e, path))?;
    if azekura_server::is_open_to_others(path) {
        let path = path.display();
        note!("azekura: warning: other users can read the login in {path}: run `chmod 600 {path}`");
    }
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut parts = line.splitn(2, |byte| *byte == b':');
    match (parts.next(), parts.next()) {
        (Some(name), Some(password))
            if !name.is_empty() && !password.is_empty() && !name.contains(&b' ') =>
        {
            Ok([name, b" ", password].concat())
        }
        _ => Err(Error::new(Kind::Invalid, "the login cannot be read")
            .at(path)
            .remedy("its first line must be name:password, the name without a space")),
    }
}
