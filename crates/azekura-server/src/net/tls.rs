//! The server's certificate and key for TLS.
//!
//! The protocol is rustls's, from TLS 1.2 on; nothing here computes. Certificates can be read again while the server
//! runs: existing connections keep theirs. It knows no memcached.

use std::path::Path;
use std::sync::Arc;

use azekura::error::Result;
use azekura_wire::pem::{certificates, private_key, unusable};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Reads the certificate chain, the key and, if clients must show a certificate too, who may have signed it.
///
/// Errors: `Invalid` (a file cannot be read, is not what it should be, or the key is another's).
pub(crate) fn identity(
    certificate: &Path,
    key: &Path,
    clients: Option<&Path>,
) -> Result<Arc<ServerConfig>> {
    let chain = certificates(certificate)?;
    let key_of = private_key(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|_| unusable(certificate))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root).map_err(|_| unusable(path))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|_| unusable(path))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder
        .with_single_cert(chain, key_of)
        .map(Arc::new)
        .map_err(|_| unusable(certificate))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use azekura_wire::Stream;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, StreamOwned};

    use super::*;

    #[test]
    fn what_the_system_does_not_take_is_said_to_be_held_and_the_end_is_told() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sockets/certificates");
        let chain = folder.join("server.pem");
        let config = identity(&chain, &folder.join("server-key.pem"), None).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(certificates(&chain).unwrap().pop().unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(client), name).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut client = StreamOwned::new(client, stream);
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut tls = Stream::accept_tls(stream, config).unwrap();
        let greeting = std::thread::spawn(move || {
            client.write_all(b"mn").unwrap();
            client
        });
        let mut read = Vec::with_capacity(100);
        while read.len() < 2 {
            let _ = tls.read(&mut read);
            std::thread::yield_now();
        }
        let mut client = greeting.join().unwrap();
        assert_eq!(tls.held(), 0);
        let mut sent = 0;
        while let Ok(len) = tls.write(&[b'x'; 10_000]) {
            sent += len;
        }
        assert!(tls.held() > 0);
        assert!(tls.has_moved() && !tls.has_moved());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| all.len())
        });
        while tls.flush().is_err() {
            std::thread::yield_now();
        }
        assert!(tls.held() == 0 && tls.has_moved());
        drop(tls);
        // An end without close_notify would be an error.
        assert_eq!(reader.join().unwrap().unwrap(), sent);
    }
}
