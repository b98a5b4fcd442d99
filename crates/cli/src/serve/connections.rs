//! Accepts connections, limits their number and the time they may wait, and closes them at shutdown.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep};

use super::api::{self, App};

/// Connections at once; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// Time for the headers of a request, and of an idle connection until the next request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a client must accept some of the bytes that are sent to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after `accept` failed, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` is ready: then new requests are refused, running ones are finished within the application's timeout, and connections
/// closed within `linger`.
pub async fn serve(listener: TcpListener, app: Arc<App>, stop: impl Future<Output = ()>, linger: Duration) {
    let (closing, is_closing) = watch::channel(false);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let router = api::router(app.clone());
    let accepting = async {
        loop {
            let permit = permits.clone().acquire_owned().await.expect("the semaphore is not closed");
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (router, is_closing) = (router.clone(), is_closing.clone());
            tokio::spawn(async move {
                connection(stream, router, is_closing).await;
                drop(permit);
            });
        }
    };
    let ending = async {
        stop.await;
        app.engine.stop();
        let engine = app.engine.clone();
        let timeout = app.timeout;
        // Meanwhile new requests are answered with status 503.
        tokio::task::spawn_blocking(move || engine.wait_idle(timeout)).await.unwrap_or(false)
    };
    tokio::select! {
        () = accepting => unreachable!("connections are accepted without end"),
        is_idle = ending => {
            if !is_idle {
                eprintln!("some requests did not finish in time and were ended");
            }
        }
    }
    // Each connection receives the value and closes after its current request.
    let _ = closing.send(true);
    let all = permits.acquire_many(MAX_CONNECTIONS as u32);
    let _ = tokio::time::timeout(linger, all).await;
}

/// Serves the requests of a connection. Its errors concern only that client.
async fn connection(stream: TcpStream, router: axum::Router, mut is_closing: watch::Receiver<bool>) {
    // Tokens are small and are wanted at once.
    let _ = stream.set_nodelay(true);
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_headers(100);
    let io = TokioIo::new(TimeoutStream { stream, stalled: None });
    let mut connection = pin!(server.serve_connection(io, TowerToHyperService::new(router)));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = is_closing.wait_for(|is_closing| *is_closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// A stream whose writes fail if the peer accepts no bytes for [`WRITE_TIMEOUT`].
struct TimeoutStream {
    stream: TcpStream,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl TimeoutStream {
    /// Passes a result of writing on, and fails if it has been pending for too long.
    fn watched<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let sleep = || Box::pin(tokio::time::sleep_until(Instant::now() + WRITE_TIMEOUT));
        ready!(self.stalled.get_or_insert_with(sleep).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimeoutStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl AsyncWrite for TimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
