//! `panoply serve MODEL`: a language model behind OpenAI's HTTP API.
//!
//! The engine's thread runs the model; everything else is asynchronous and never blocks on it. [`request`] parses requests, [`answer`] and
//! [`error`] write responses, [`api`] has the routes, and [`connections`] accepts and closes connections.

mod answer;
mod api;
mod connections;
mod error;
mod request;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use panoply::llm::{Engine, EngineOptions, Model};
use panoply::{Error, Result};
use serde_json::json;
use tokio::sync::Notify;

use crate::generation_args::{CONTEXT_NOTE, ThreadArgs, concurrent_sequences, open_model, with_context_note};
use crate::output::{self, DeviceArgs, INTERRUPTED};

use api::App;

/// Threads for HTTP: requests are parsed and tokenized elsewhere.
const HTTP_THREADS: usize = 2;
/// Maximum of `--timeout` in seconds, a year: a deadline that far away can be represented.
const MAX_TIMEOUT: u64 = 365 * 24 * 3600;
/// Time for connections to send the rest of their responses when the server stops (graceful shutdown).
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Serve a language model over HTTP, with OpenAI's API
#[derive(Args)]
pub struct ServeCommand {
    /// Model: a GGUF file, or a Hugging Face folder with `config.json`, `tokenizer.json` and safetensors files
    model: PathBuf,
    /// Address to listen on; one that other machines reach requires an API key
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 for a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Key that clients must send as `Authorization: Bearer KEY`
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// File whose first line is the API key, which then is not visible in the list of processes
    #[arg(long, value_name = "FILE", conflicts_with = "api_key")]
    api_key_file: Option<PathBuf>,
    /// Name of the model in the API [default: the name in the model's files, else that of the file or folder]
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,
    /// Maximum number of requests that run at once; each has a key-value cache of the context length
    #[arg(long, value_name = "N", default_value_t = EngineOptions::default().max_concurrent, value_parser = concurrent_sequences)]
    max_concurrent: usize,
    /// Maximum number of requests that wait; further ones get status 429
    #[arg(long, value_name = "N", default_value_t = EngineOptions::default().max_queue)]
    max_queue: usize,
    /// Maximum size of a request's body
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    max_body_bytes: usize,
    /// Maximum duration of a request
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(..=MAX_TIMEOUT))]
    timeout: u64,
    /// Size of the key-value cache of each request in tokens, including the prompt [default: the context length of the model]
    #[arg(long, value_name = "N")]
    context_length: Option<usize>,
    /// Print one JSON document with the address on stdout when the server is ready
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Opens the model and serves it until a signal arrives.
pub fn run(arguments: &ServeCommand) -> Result<ExitCode> {
    let api_key = arguments.api_key()?;
    let address = SocketAddr::new(arguments.host, arguments.port);
    // Before the model is loaded, so that a port in use is reported at once.
    let listener = listen(address)?;
    let stop = StopSignal::listen()?;
    arguments.threads.apply()?;
    let choice = arguments.device.select()?;
    let model = Arc::new(choice.device().scope(|| arguments.open())?);
    let file_name = || {
        // A dot in a folder's name, such as `Qwen2.5-0.5B`, is not the beginning of an extension.
        let path = &arguments.model;
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.map(|name| name.to_string_lossy().into_owned())
    };
    let own_name = || model.name().map(str::to_string).or_else(file_name);
    let name = arguments.model_name.clone().or_else(own_name).unwrap_or_else(|| "model".to_string());
    let ServeCommand { max_concurrent, max_queue, .. } = *arguments;
    let engine = Engine::start(model, EngineOptions { max_concurrent, max_queue })?;
    let bound = listener.local_addr().map_err(|error| Error::io("cannot read the address of the server", error))?;
    let app = Arc::new(App {
        engine: Arc::new(engine),
        name,
        api_key,
        is_local: arguments.host.is_loopback(),
        max_body_bytes: arguments.max_body_bytes,
        timeout: Duration::from_secs(arguments.timeout),
        started: std::time::SystemTime::now(),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(HTTP_THREADS).enable_all().build();
    let runtime = runtime.map_err(|error| Error::io("cannot start the threads of the server", error))?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener);
        let listener = listener.map_err(|error| Error::io("cannot listen", error))?;
        let address = format!("http://{bound}");
        if arguments.json {
            output::print_json_line(&json!({"schema": 1, "address": address, "model": app.name}));
        }
        eprintln!("{} on {}: {address} (Ctrl-C ends)", app.name, choice.device());
        stop.is_serving.store(true, Ordering::SeqCst);
        connections::serve(listener, app.clone(), stop.notify.notified(), SHUTDOWN_TIMEOUT).await;
        Ok::<(), Error>(())
    })?;
    runtime.shutdown_timeout(Duration::ZERO);
    Ok(ExitCode::SUCCESS)
}

impl ServeCommand {
    /// Opens the model on the current device.
    fn open(&self) -> Result<Model> {
        open_model(&self.model, self.context_length).map_err(|error| with_context_note(error, CONTEXT_NOTE))
    }

    /// Returns the API key of the arguments or of the file.
    ///
    /// # Errors
    /// If the file cannot be read, the key is not valid, or the server is reachable from other machines without a key.
    fn api_key(&self) -> Result<Option<String>> {
        let key = match &self.api_key_file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text =
                    text.map_err(|error| Error::io(format!("cannot read the API key {}", path.display()), error))?;
                Some(text.lines().next().unwrap_or_default().trim().to_string())
            }
            None => self.api_key.clone(),
        };
        let is_valid = |key: &String| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
        match key {
            Some(key) if !is_valid(&key) => {
                Err(Error::mistake("the API key must be one or more visible ASCII characters without spaces"))
            }
            None if !self.host.is_loopback() => {
                let message = format!("other machines can reach {}, so the server needs an API key", self.host);
                Err(Error::mistake(message).note("pass --api-key or --api-key-file, or listen on 127.0.0.1"))
            }
            key => Ok(key),
        }
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            let message = format!("another program listens on {address}; choose another --port, or 0 for a free one");
            Error::mistake(message)
        }
        _ => Error::io(format!("cannot listen on {address}"), error),
    })
}

/// The signals that end the server: the first one lets running requests finish, a second one does not.
struct StopSignal {
    notify: Arc<Notify>,
    is_serving: Arc<AtomicBool>,
}

impl StopSignal {
    fn listen() -> Result<StopSignal> {
        let signal = StopSignal { notify: Arc::default(), is_serving: Arc::default() };
        let (notify, is_serving) = (signal.notify.clone(), signal.is_serving.clone());
        let set = ctrlc::set_handler(move || {
            if !is_serving.swap(false, Ordering::SeqCst) {
                std::process::exit(INTERRUPTED);
            }
            eprintln!("finishing the requests that run; Ctrl-C again ends them");
            notify.notify_one();
        });
        set.map_err(|error| Error::mistake(format!("cannot listen for signals: {error}")))?;
        Ok(signal)
    }
}
