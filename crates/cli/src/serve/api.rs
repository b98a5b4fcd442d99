//! HTTP routes: access control and handlers.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use panoply::llm::{Engine, Event, Ticket};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::error::{ApiError, document};
use super::request::{Api, ApiRequest};

/// The chat page: one file without anything from elsewhere.
const PAGE: &str = include_str!("page.html");
/// Chunks of a stream that wait for its reader; the engine keeps the rest, at most one for each token.
const CHUNKS: usize = 16;
/// Time in which the body of a request must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The state that all requests share.
pub struct App {
    pub engine: Arc<Engine>,
    /// The name of the model in the API.
    pub name: String,
    pub api_key: Option<String>,
    /// True if only this machine reaches the server.
    pub is_local: bool,
    pub max_body_bytes: usize,
    /// Maximum duration of a request.
    pub timeout: Duration,
    pub started: SystemTime,
}

/// The routes of the server.
pub fn router(app: Arc<App>) -> Router {
    let missing = || async { ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path") };
    let wrong_method = || async {
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path has another method")
    };
    Router::new()
        .route("/v1/chat/completions", post(chat_completion))
        .route("/v1/completions", post(completion))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/", get(page))
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), guard))
        .layer(DefaultBodyLimit::max(app.max_body_bytes))
        .with_state(app)
}

/// Refuses requests of other web pages, and those without the key.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if let Some(refusal) = refusal(&app, request.headers()) {
        return refusal.into_response();
    }
    if !is_open(request.uri().path()) && !has_key(&app, request.headers()) {
        let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY`";
        return ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response();
    }
    next.run(request).await
}

/// Returns true for paths that need no API key: the chat page, in which the user enters it, and the health check.
fn is_open(path: &str) -> bool {
    matches!(path, "/" | "/health")
}

/// Returns the error for a request that a browser sent for a page of another origin, directly or by DNS rebinding.
fn refusal(app: &App, headers: &HeaderMap) -> Option<ApiError> {
    let text = |name: HeaderName| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    let is_other = headers.contains_key(header::ORIGIN)
        && text(header::ORIGIN).and_then(|origin| Some(origin.split_once("://")?.1)) != Some(host);
    let refused = |code, message: String| Some(ApiError::new(StatusCode::FORBIDDEN, code, message));
    if app.is_local && !host.is_empty() && !is_local_name(host) {
        let message = format!(
            "the host name `{host:.100}` is not accepted, since the server listens on this machine only; use localhost, or start the \
             server with `--host ADDRESS` and `--api-key KEY`"
        );
        return refused("host_not_allowed", message);
    }
    if is_other {
        return refused("cross_origin", "web pages of other origins cannot use this server".to_string());
    }
    None
}

/// True if a host with or without a port is this machine by its name or a number.
fn is_local_name(host: &str) -> bool {
    let port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, end)) if port(end) && !name.ends_with(':') => name,
        _ => host,
    };
    let number = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || number.is_ok_and(|number| number.is_loopback())
}

fn has_key(app: &App, headers: &HeaderMap) -> bool {
    let Some(key) = &app.api_key else { return true };
    let sent = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let sent = match sent.split_at_checked(7) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => key,
        _ => b"",
    };
    // In constant time: the duration does not depend on the number of correct bytes.
    let differs = sent.iter().zip(key.as_bytes()).fold(0, |differs, (x, y)| differs | (x ^ y));
    sent.len() == key.len() && differs == 0
}

async fn page() -> Response {
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)];
    (headers, PAGE).into_response()
}

async fn health(State(app): State<Arc<App>>) -> Response {
    match app.engine.is_stopping() {
        true => document(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "shutting down"})),
        false => document(StatusCode::OK, &json!({"status": "ok"})),
    }
}

fn model_document(app: &App) -> Value {
    json!({"id": app.name, "object": "model", "created": seconds(app.started), "owned_by": "panoply"})
}

async fn models(State(app): State<Arc<App>>) -> Response {
    document(StatusCode::OK, &json!({"object": "list", "data": [model_document(&app)]}))
}

async fn model(State(app): State<Arc<App>>, axum::extract::Path(name): axum::extract::Path<String>) -> Response {
    match name == app.name {
        true => document(StatusCode::OK, &model_document(&app)),
        false => ApiError::no_such_model(&name, &app.name).into_response(),
    }
}

/// Counts in Prometheus' text format.
async fn metrics(State(app): State<Arc<App>>) -> Response {
    let stats = app.engine.stats();
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, rows: &[(&str, u64)]| {
        text += &format!("# HELP panoply_{name} {help}\n# TYPE panoply_{name} {kind}\n");
        rows.iter().for_each(|(label, value)| text += &format!("panoply_{name}{label} {value}\n"));
    };
    add("requests_running", "gauge", "Requests that run.", &[("", stats.running as u64)]);
    add("requests_waiting", "gauge", "Requests that wait.", &[("", stats.waiting as u64)]);
    let outcomes = [
        ("{outcome=\"finished\"}", stats.finished),
        ("{outcome=\"cancelled\"}", stats.cancelled),
        ("{outcome=\"failed\"}", stats.failed),
        ("{outcome=\"refused\"}", stats.refused),
    ];
    add("requests_total", "counter", "Requests by their outcome.", &outcomes);
    add("prompt_tokens_total", "counter", "Tokens of prompts that were computed.", &[("", stats.prompt_tokens)]);
    add("reused_tokens_total", "counter", "Tokens of prompts found in the cache.", &[("", stats.reused_tokens)]);
    add("completion_tokens_total", "counter", "Tokens that were generated.", &[("", stats.completion_tokens)]);
    add("steps_total", "counter", "Steps of the model.", &[("", stats.steps)]);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn chat_completion(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(Api::Chat, app, request).await
}

async fn completion(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(Api::Completion, app, request).await
}

/// Answers a request for text.
async fn answer(api: Api, app: Arc<App>, request: Request) -> Response {
    match begin(api, app, request).await {
        Ok(Begun::Stream(response)) => response,
        Ok(Begun::Whole(running)) => running.whole().await.unwrap_or_else(ApiError::into_response),
        Err(error) => error.into_response(),
    }
}

/// A request that the engine accepted.
enum Begun {
    Stream(Response),
    Whole(Running),
}

async fn begin(api: Api, app: Arc<App>, request: Request) -> Result<Begun, ApiError> {
    let deadline = Instant::now() + app.timeout;
    let body = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_| {
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body of the request did not arrive in time")
    })?;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("the body has more than the {} bytes that are allowed", app.max_body_bytes);
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
        }
        _ => ApiError::invalid(None, "the body of the request could not be read"),
    })?;
    // Parsing and tokenizing a long prompt takes milliseconds.
    let begun = tokio::task::spawn_blocking(move || submit(api, app, &body, deadline)).await;
    let (running, is_stream) = begun.map_err(|_| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request could not be processed")
    })??;
    Ok(if is_stream { Begun::Stream(running.stream()) } else { Begun::Whole(running) })
}

/// Gives the request to the engine.
fn submit(api: Api, app: Arc<App>, body: &[u8], deadline: Instant) -> Result<(Running, bool), ApiError> {
    let request = ApiRequest::parse(api, body, &app.name)?;
    let (sender, events) = mpsc::unbounded_channel();
    let sink = move |event| {
        // A receiver that is gone cancels the request by its ticket.
        let _ = sender.send(event);
    };
    // A random number: the id of the answer, and the seed of a request that has none.
    let random = RandomState::new().hash_one(SystemTime::now());
    let ticket = app.engine.submit(&request.request(random), sink)?;
    let prefix = if api == Api::Chat { "chatcmpl" } else { "cmpl" };
    let answer = Answer {
        api,
        id: format!("{prefix}-{random:016x}"),
        created: seconds(SystemTime::now()),
        model: app.name.clone(),
        has_logprobs: request.logprobs.is_some(),
        includes_usage: request.includes_usage,
        offset: 0,
    };
    Ok((Running { app, events, answer, deadline, _ticket: ticket }, request.is_stream))
}

/// A request that runs. Dropping it, as the server does when its client goes away, cancels it.
struct Running {
    app: Arc<App>,
    events: mpsc::UnboundedReceiver<Event>,
    answer: Answer,
    deadline: Instant,
    _ticket: Ticket,
}

impl Running {
    /// The next event, until the deadline.
    async fn next(&mut self) -> Result<Event, ApiError> {
        match timeout_at(self.deadline, self.events.recv()).await {
            Ok(Some(event)) => Ok(event),
            // The engine was closed.
            Ok(None) => Err(panoply::llm::SubmitError::Stopped.into()),
            Err(_) => Err(ApiError::timeout()),
        }
    }

    /// The whole answer.
    async fn whole(mut self) -> Result<Response, ApiError> {
        let (mut text, mut logprobs) = (String::new(), Vec::new());
        loop {
            match self.next().await? {
                Event::Text { text: piece, logprobs: more } => {
                    text += &piece;
                    logprobs.extend(more);
                }
                Event::Finished(end) => {
                    let tokenizer = self.app.engine.model().tokenizer();
                    return Ok(document(StatusCode::OK, &self.answer.whole(tokenizer, &text, &logprobs, &end)));
                }
                Event::Failed(error) => return Err(ApiError::failed(&error)),
            }
        }
    }

    /// The answer as server-sent events, each when it is there.
    fn stream(self) -> Response {
        let (sender, chunks) = mpsc::channel(CHUNKS);
        tokio::spawn(async move {
            let deadline = self.deadline;
            // A reader that is gone ends it at once, one that reads slowly at the deadline.
            tokio::select! {
                () = self.send_chunks(&sender) => {}
                () = sender.closed() => {}
                () = tokio::time::sleep_until(deadline + Duration::from_secs(1)) => {}
            }
        });
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        (headers, Body::from_stream(Chunks(chunks))).into_response()
    }

    async fn send_chunks(mut self, sender: &mpsc::Sender<Bytes>) {
        let app = self.app.clone();
        let tokenizer = app.engine.model().tokenizer();
        let send = async |value: &Value| sender.send(Bytes::from(format!("data: {value}\n\n"))).await.is_ok();
        let mut goes_on = match self.answer.first_chunk() {
            Some(chunk) => send(&chunk).await,
            None => true,
        };
        while goes_on {
            match self.next().await {
                Ok(Event::Text { text, logprobs }) => {
                    goes_on = send(&self.answer.text_chunk(tokenizer, &text, &logprobs)).await;
                }
                Ok(Event::Finished(end)) => {
                    for chunk in self.answer.last_chunks(&end) {
                        goes_on &= send(&chunk).await;
                    }
                    if goes_on {
                        let _ = sender.send(Bytes::from_static(b"data: [DONE]\n\n")).await;
                    }
                    return;
                }
                Ok(Event::Failed(error)) => {
                    send(&ApiError::failed(&error).document()).await;
                    return;
                }
                Err(error) => {
                    send(&error.document()).await;
                    return;
                }
            }
        }
    }
}

/// Chunks of a body from a channel.
struct Chunks(mpsc::Receiver<Bytes>);

impl futures_core::Stream for Chunks {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(Ok))
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_and_numbers_of_this_machine_are_local() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:80", "127.9.9.9:1", "[::1]", "[::1]:8080"] {
            assert!(is_local_name(host), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8080", "localhost.evil.example", "192.168.0.1:80", "[2001:db8::1]:80", ":80"]
        {
            assert!(!is_local_name(host), "{host}");
        }
    }
}
