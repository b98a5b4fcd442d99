//! `panoply serve` with the tiny language models of the crate `llm`: OpenAI's API, limits, and clients that behave badly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/fixtures").join(name)
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_panoply"));
    command.arg("serve").arg(fixture("chat.gguf")).args(arguments).env("PANOPLY_DEVICE", "cpu");
    command
}

/// A server on a free port, which ends with the value.
struct Server {
    child: Child,
    address: SocketAddr,
    model: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let mut command = command(&[&["--port", "0", "--json"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            panic!("{}", String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr));
        }
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["address"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        Server { child, address, model: ready["model"].as_str().unwrap().to_string() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// Sends a request of which all headers are given, and returns the connection.
    fn send(&self, head: &str, body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        // A server that refuses a body early may have closed the connection.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        stream
    }

    fn head(&self, method: &str, path: &str, more: &str, length: usize) -> String {
        let address = self.address;
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n"
        )
    }

    fn request(&self, method: &str, path: &str, more: &str, body: &[u8]) -> Response {
        Response::read(self.send(&self.head(method, path, more, body.len()), body))
    }

    fn get(&self, path: &str) -> Response {
        self.request("GET", path, "", b"")
    }

    fn post(&self, path: &str, body: &Value) -> Response {
        self.request("POST", path, "", body.to_string().as_bytes())
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").text();
        let row = text.lines().find_map(|line| line.strip_prefix(&format!("panoply_{name} ")));
        row.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
    }

    /// Waits until a count has a value.
    fn wait_for(&self, name: &str, value: u64) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.metric(name) != value {
            assert!(Instant::now() < end, "{name} is {}, not {value}", self.metric(name));
            std::thread::yield_now();
        }
    }

    #[cfg(unix)]
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Response {
    status: u16,
    /// Lower-case names.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    fn read(stream: TcpStream) -> Response {
        let mut stream = BufReader::new(stream);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no headers"));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
            .collect();
        let mut response = Response { status, headers, body: bytes[end + 4..].to_vec() };
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = unchunked(&response.body);
        }
        response
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The documents of server-sent events, of which the last is `[DONE]`.
    fn events(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let text = self.text();
        let mut events: Vec<&str> =
            text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{text}");
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    fn error(&self) -> (u16, String) {
        let error = &self.json()["error"];
        assert!(error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some(), "{error}");
        (self.status, error["message"].as_str().unwrap().to_string())
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return all };
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        all.extend(&bytes[end + 2..][..length]);
        if length == 0 {
            return all;
        }
        bytes = &bytes[end + 2 + length + 2..];
    }
}

fn chat(content: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 12, "seed": 5});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A bias that forbids the tokens which end a text, so that it has the wanted length.
fn endless() -> Value {
    let tokens: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("chat/tokenizer.json")).unwrap()).unwrap();
    let added = tokens["added_tokens"].as_array().unwrap();
    let ends = added.iter().filter(|added| added["content"] == "<|end|>" || added["content"] == "<|im_end|>");
    // More than the logits of the tiny model differ by.
    Value::Object(ends.map(|added| (added["id"].to_string(), json!(-100))).collect())
}

#[test]
fn streamed_and_whole_answers_equal_the_output_of_run() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/health").json(), json!({"status": "ok"}));
    let list = server.get("/v1/models").json();
    assert_eq!((list["object"].as_str(), list["data"][0]["id"].as_str()), (Some("list"), Some(server.model.as_str())));
    assert_eq!(server.get(&format!("/v1/models/{}", server.model)).json()["object"], "model");
    let cases = [
        json!({"temperature": 0}),
        json!({"temperature": 0, "logprobs": true, "top_logprobs": 3}),
        json!({"temperature": 1.5, "top_p": 0.9, "logprobs": true, "logit_bias": endless()}),
        json!({"temperature": 1, "frequency_penalty": 0.7, "presence_penalty": 0.2, "stop": ["a", "e"]}),
    ];
    for case in cases {
        let mut body = chat("hello world", case);
        let whole = server.post("/v1/chat/completions", &body).json();
        assert_eq!(whole["object"], "chat.completion");
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        let events = server.post("/v1/chat/completions", &body).events();
        let ids: Vec<&Value> = events.iter().map(|event| &event["id"]).collect();
        assert!(ids.iter().all(|id| *id == ids[0] && id.as_str().unwrap().starts_with("chatcmpl-")));
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        let (usage, events) = events.split_last().unwrap();
        assert_eq!(usage["choices"], json!([]));
        // The second of two equal prompts finds the first in the cache.
        let counts = |usage: &Value| {
            [&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]].map(Clone::clone)
        };
        assert_eq!(counts(&usage["usage"]), counts(&whole["usage"]));
        assert!(events.iter().all(|event| event["usage"].is_null() && event["object"] == "chat.completion.chunk"));
        let choices = || events.iter().map(|event| &event["choices"][0]);
        let text: String = choices().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        let choice = &whole["choices"][0];
        assert_eq!(text, choice["message"]["content"].as_str().unwrap());
        let reasons: Vec<&str> = choices().filter_map(|choice| choice["finish_reason"].as_str()).collect();
        assert_eq!(reasons, [choice["finish_reason"].as_str().unwrap()]);
        let logprobs: Vec<Value> =
            choices().filter_map(|choice| choice["logprobs"]["content"].as_array()).flatten().cloned().collect();
        match choice["logprobs"]["content"].as_array() {
            Some(expected) => {
                assert_eq!(&logprobs, expected);
                assert_eq!(logprobs.len() as u64, whole["usage"]["completion_tokens"].as_u64().unwrap());
                let top = body["top_logprobs"].as_u64().unwrap_or(0) as usize;
                assert!(logprobs.iter().all(|entry| entry["top_logprobs"].as_array().unwrap().len() == top));
            }
            None => assert!(choice["logprobs"].is_null() && logprobs.is_empty()),
        }
        if body["temperature"] == 0 {
            let settings = ["--chat", "--temperature", "0", "-n", "12", "--json"];
            let mut run = Command::new(env!("CARGO_BIN_EXE_panoply"));
            run.arg("run").arg(fixture("chat.gguf")).args(settings).env("PANOPLY_DEVICE", "cpu");
            let output = run.arg("hello world").output().unwrap();
            let run: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(run["text"], choice["message"]["content"]);
        }
    }
}

#[test]
fn completions_continue_texts_and_tokens() {
    let server = Server::start(&["--model-name", "tiny"]);
    let body = json!({"model": "tiny", "prompt": "the quick", "max_tokens": 6, "temperature": 0, "logprobs": 2, "logit_bias": endless()});
    let whole = server.post("/v1/completions", &body).json();
    let choice = &whole["choices"][0];
    assert_eq!((whole["object"].as_str(), choice["finish_reason"].as_str()), (Some("text_completion"), Some("length")));
    let logprobs = &choice["logprobs"];
    let tokens: Vec<&str> =
        logprobs["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!((tokens.len(), tokens.concat().as_str()), (6, choice["text"].as_str().unwrap()));
    let offsets: Vec<usize> = (0..6).map(|n| tokens[..n].concat().chars().count()).collect();
    assert_eq!(logprobs["text_offset"], json!(offsets));
    assert!(logprobs["token_logprobs"].as_array().unwrap().iter().all(|logprob| logprob.as_f64().unwrap() <= 0.0));
    let mut stream = body.clone();
    stream["stream"] = true.into();
    let events = server.post("/v1/completions", &stream).events();
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, choice["text"].as_str().unwrap());
    let offset = |event: &Value| event["choices"][0]["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default();
    assert_eq!(json!(events.iter().flat_map(offset).collect::<Vec<Value>>()), json!(offsets));
    // No text is asked for.
    let nothing = server.post("/v1/completions", &json!({"prompt": [5, 6, 7], "max_tokens": 0})).json();
    assert_eq!((&nothing["choices"][0]["text"], &nothing["usage"]["prompt_tokens"]), (&json!(""), &json!(3)));
}

#[test]
fn wrong_requests_have_the_right_status_and_one_sentence() {
    let server = Server::start(&["--max-body-bytes", "5000"]);
    let path = "/v1/chat/completions";
    let refused = |body: &[u8]| server.request("POST", path, "", body).error();
    assert!(refused(b"{").1.starts_with("the body is not valid JSON"));
    let deep = [b"[".repeat(2000), b"]".repeat(2000)].concat();
    assert_eq!(refused(&deep).0, 400);
    assert_eq!(refused(b"\xff\xfe").0, 400);
    assert_eq!(refused(b"").0, 400);
    assert_eq!(refused(&[b' '; 5001]).0, 413);
    // The length is a lie, or is not told.
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
        server.address
    );
    let chunks: Vec<u8> =
        (0..6).flat_map(|_| [b"400\r\n".to_vec(), vec![b' '; 1024], b"\r\n".to_vec()].concat()).collect();
    assert_eq!(Response::read(server.send(&chunked, &chunks)).error().0, 413);
    let post = |body: Value| server.post(path, &body).error();
    assert_eq!(post(chat("x", json!({"tools": [{}]}))).0, 400);
    assert_eq!(post(chat("x", json!({"frobnicate": 1}))).1, "the parameter `frobnicate` is not supported; remove it");
    assert_eq!(post(chat("x", json!({"temperature": -1}))).0, 400);
    assert_eq!(post(chat("x", json!({"model": "gpt-4"}))).0, 404);
    assert!(post(chat(&"hello ".repeat(400), json!({}))).1.contains("the context 256 positions"));
    assert_eq!(server.get("/v1/nothing").error().0, 404);
    assert_eq!(server.get(path).error().0, 405);
    // A web page of another origin, and one whose name was made to point here.
    for headers in ["Origin: https://evil.example\r\n", "Origin: null\r\n"] {
        assert_eq!(server.request("POST", path, headers, b"{}").error().0, 403);
    }
    let rebound =
        format!("GET /v1/models HTTP/1.1\r\nHost: evil.example:{}\r\nConnection: close\r\n\r\n", server.address.port());
    let (status, message) = Response::read(server.send(&rebound, b"")).error();
    assert_eq!(status, 403);
    assert!(message.contains("the host name `evil.example:") && message.contains("--host ADDRESS"), "{message}");
    let own = server.request("GET", "/v1/models", &format!("Origin: http://{}\r\n", server.address), b"");
    assert_eq!((own.status, own.header("access-control-allow-origin")), (200, None));
    let page = server.get("/");
    assert!(page.text().contains("<title>Panoply chat</title>"));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert_eq!(server.metric("requests_total{outcome=\"finished\"}"), 0);
}

#[test]
fn a_key_is_required_where_one_is_set_and_off_this_machine() {
    let server = Server::start(&["--api-key", "secret"]);
    for header in
        ["", "Authorization: Bearer wrong\r\n", "Authorization: secret\r\n", "Authorization: Bearer secret2\r\n"]
    {
        let response = server.request("GET", "/v1/models", header, b"");
        assert_eq!((response.error().0, response.header("www-authenticate")), (401, Some("Bearer")));
    }
    assert_eq!(server.get("/metrics").status, 401);
    for scheme in ["Bearer", "bearer"] {
        let header = format!("Authorization: {scheme} secret\r\n");
        assert_eq!(server.request("GET", "/v1/models", &header, b"").status, 200);
    }
    assert_eq!((server.get("/health").status, server.get("/").status), (200, 200));
    let failed = |arguments: &[&str]| {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let message = failed(&["--host", "0.0.0.0", "--port", "0"]);
    assert!(message.contains("other machines can reach 0.0.0.0, so the server needs an API key"), "{message}");
    assert!(failed(&["--api-key", "a b"]).contains("visible ASCII characters"));
    let message = failed(&["--port", &server.address.port().to_string()]);
    assert!(
        message.contains(&format!("another program listens on {}; choose another --port", server.address)),
        "{message}"
    );
    for count in ["0", "33"] {
        let output = command(&["--port", "0", "--max-concurrent", count]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(&format!("{count} requests at once; the number is from 1 to 32")), "{stderr}");
    }
}

/// A request whose answer is as long as the context allows.
fn long() -> Value {
    chat("the", json!({"max_tokens": null, "stream": true, "logit_bias": endless()}))
}

/// Sends a request and reads until its first text.
fn begun(server: &Server) -> BufReader<TcpStream> {
    let body = long().to_string();
    let mut stream =
        BufReader::new(server.send(&server.head("POST", "/v1/chat/completions", "", body.len()), body.as_bytes()));
    let mut line = String::new();
    while !line.contains("\"content\":\"") || line.contains("\"content\":\"\"") {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0);
    }
    stream
}

#[test]
fn clients_beyond_the_queue_wait_and_places_of_those_that_leave_are_free() {
    let server = Server::start(&["--max-concurrent", "1", "--max-queue", "0"]);
    let mut disconnected = 0;
    for _ in 0..3 {
        let stream = begun(&server);
        let response = server.post("/v1/chat/completions", &chat("x", json!({})));
        // The answer may have been finished meanwhile.
        if response.status != 200 {
            assert_eq!((response.error().0, response.header("retry-after")), (429, Some("1")));
        }
        drop(stream);
        disconnected += 1;
        server.wait_for("requests_running", 0);
        let ended =
            ["finished", "cancelled"].map(|outcome| server.metric(&format!("requests_total{{outcome=\"{outcome}\"}}")));
        assert!(ended.iter().sum::<u64>() >= disconnected, "{ended:?}");
    }
    assert_eq!(server.post("/v1/chat/completions", &chat("x", json!({}))).status, 200);
    assert_eq!(server.metric("requests_total{outcome=\"failed\"}"), 0);
}

#[test]
fn two_hundred_streams_with_disconnects_and_slow_readers() {
    let server = Server::start(&["--max-concurrent", "4", "--max-queue", "400"]);
    let body = |n: usize| {
        chat("hello world", json!({"max_tokens": 10, "seed": n % 5, "stream": true, "logit_bias": endless()}))
    };
    let texts = |response: &Response| -> String {
        let events = response.events();
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
    };
    let expected: Vec<String> = (0..5).map(|n| texts(&server.post("/v1/chat/completions", &body(n)))).collect();
    let connections: Vec<(usize, TcpStream)> = (0..200)
        .map(|n| {
            let body = body(n).to_string();
            (n, server.send(&server.head("POST", "/v1/chat/completions", "", body.len()), body.as_bytes()))
        })
        .collect();
    let (mut slow, mut read) = (Vec::new(), Vec::new());
    for (n, stream) in connections {
        match n % 4 {
            // Every fourth client leaves at once, or after some bytes.
            0 if n % 8 == 0 => drop(stream),
            0 => drop((&stream).read(&mut [0; 20])),
            // Every fourth reads nothing until all others have their answers.
            1 => slow.push((n, stream)),
            _ => read.push((n, stream)),
        }
    }
    for (n, stream) in read.into_iter().chain(slow) {
        assert_eq!(texts(&Response::read(stream)), expected[n % 5], "stream {n}");
    }
    server.wait_for("requests_running", 0);
    assert_eq!(server.metric("requests_waiting"), 0);
    let outcome = |name: &str| server.metric(&format!("requests_total{{outcome=\"{name}\"}}"));
    assert_eq!((outcome("failed"), outcome("refused")), (0, 0));
    assert!(outcome("finished") >= 155 && outcome("finished") + outcome("cancelled") <= 205);
}

#[cfg(unix)]
#[test]
fn signal_finishes_running_requests_and_rejects_new_ones() {
    for name in ["INT", "TERM"] {
        let mut server = Server::start(&["--max-concurrent", "1"]);
        let mut stream = begun(&server);
        // Others wait for their dir; all are finished.
        let body = long().to_string();
        let head = server.head("POST", "/v1/chat/completions", "", body.len());
        let waiting: Vec<TcpStream> = (0..6).map(|_| server.send(&head, body.as_bytes())).collect();
        server.wait_for("requests_waiting", 6);
        server.signal(name);
        let mut response = server.get("/health");
        while response.status == 200 {
            response = server.get("/health");
        }
        assert_eq!(response.status, 503);
        let refused = server.post("/v1/chat/completions", &chat("x", json!({})));
        assert_eq!((refused.error().0, refused.header("retry-after")), (503, Some("1")));
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("data: [DONE]"), "{rest}");
        for stream in waiting {
            assert!(Response::read(stream).events().len() > 2);
        }
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn requests_that_take_too_long_end_with_an_error() {
    let server = Server::start(&["--timeout", "0"]);
    assert_eq!(server.post("/v1/chat/completions", &chat("x", json!({}))).error().0, 504);
    let stream = server.post("/v1/chat/completions", &long());
    assert!(stream.text().contains("took longer than the server allows") && !stream.text().contains("[DONE]"));
    server.wait_for("requests_running", 0);
}

/// Numbers of a fixed sequence (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % count.max(1)
    }
}

/// Requests with changed, inserted, removed and repeated bytes: 300, or 30,000 with PANOPLY_TEST_FULL=1.
#[test]
fn requests_with_random_changes_leave_the_server_as_it_was() {
    let server = Server::start(&["--max-queue", "8"]);
    let body = chat("hello", json!({"max_tokens": 2, "temperature": 0})).to_string();
    let expected = server.request("POST", "/v1/chat/completions", "", body.as_bytes()).json()["choices"].clone();
    let valid = [server.head("POST", "/v1/chat/completions", "", body.len()).as_bytes(), body.as_bytes()].concat();
    let count = if std::env::var_os("PANOPLY_TEST_FULL").is_some() { 30_000 } else { 300 };
    let seed = std::env::var("PANOPLY_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut numbers = Numbers(seed * 0x9e37_79b9);
    for case in 0..count {
        let mut bytes = valid.clone();
        for _ in 0..1 + numbers.below(4) {
            let (at, length) = (numbers.below(bytes.len()), numbers.below(30));
            let end = (at + length).min(bytes.len());
            match numbers.below(5) {
                _ if bytes.is_empty() => {}
                0 => bytes[at] = numbers.below(256) as u8,
                1 => bytes.insert(at, b"\r\n:{}[]\" \0"[numbers.below(10)]),
                2 => drop(bytes.drain(at..end)),
                3 => bytes = [&bytes[..end], &bytes[at..]].concat(),
                _ => bytes.truncate(at + 1),
            }
        }
        let stream = server.connect();
        let _ = (&stream).write_all(&bytes);
        // The server would wait for what a changed length promises.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let read = (&stream).read_to_end(&mut answer);
        let is_http = answer.is_empty() || answer.starts_with(b"HTTP/1.");
        assert!(is_http, "seed {seed}, case {case}: {read:?} {}", String::from_utf8_lossy(&bytes));
    }
    let again = server.request("POST", "/v1/chat/completions", "", body.as_bytes()).json()["choices"].clone();
    assert_eq!(again, expected);
    server.wait_for("requests_running", 0);
    assert_eq!(server.metric("requests_total{outcome=\"failed\"}"), 0);
}

const OPENAI: &str = r#"
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "hello world"}]
settings = dict(model=model, messages=messages, max_tokens=8, temperature=0.7, seed=3, logprobs=True, top_logprobs=2)
whole = client.chat.completions.create(**settings)
parts = list(client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
assert text == whole.choices[0].message.content, (text, whole)
assert parts[-1].usage.total_tokens == whole.usage.total_tokens
assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
assert client.completions.create(model=model, prompt="the", max_tokens=4).usage.completion_tokens <= 4
for wrong, error in [(dict(n=2), openai.BadRequestError), (dict(model="x"), openai.NotFoundError)]:
    try:
        client.chat.completions.create(**{**settings, **wrong})
        raise SystemExit(f"{wrong} was accepted")
    except error as refused:
        assert refused.body["type"] == "invalid_request_error", refused.body
try:
    openai.OpenAI(base_url=sys.argv[1], api_key="wrong", max_retries=0).models.list()
    raise SystemExit("a wrong key was accepted")
except openai.AuthenticationError:
    pass
print("ok")
"#;

/// Needs a Python with `openai`: the one named by PANOPLY_TEST_PYTHON, or `python3`.
#[test]
fn the_client_of_openai_works_unchanged() {
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let has_client =
        Command::new(&python).args(["-c", "import openai"]).output().is_ok_and(|output| output.status.success());
    if !has_client {
        eprintln!("SKIPPED: OpenAI's client: {python} has no openai; set PANOPLY_TEST_PYTHON to another Python");
        return;
    }
    let server = Server::start(&["--api-key", "secret"]);
    let output = Command::new(python).args(["-c", OPENAI, &format!("http://{}/v1", server.address)]).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(out.trim(), "ok", "{err}");
}

/// Needs Chromium, and a Python with `playwright`: the one named by PANOPLY_TEST_PYTHON, or `python3`.
#[test]
fn the_chat_page_works_in_chromium() {
    let python = std::env::var("PANOPLY_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let succeeds = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !succeeds(Command::new(&python).args(["-c", "import playwright"])) {
        eprintln!("SKIPPED: the chat page: {python} has no playwright; set PANOPLY_TEST_PYTHON to another Python");
        return;
    }
    let Some(chromium) = Command::new("which").arg("chromium").output().ok().filter(|found| found.status.success())
    else {
        eprintln!("SKIPPED: the chat page: chromium is not installed");
        return;
    };
    let chromium = String::from_utf8(chromium.stdout).unwrap();
    let server = Server::start(&["--api-key", "secret"]);
    let script = include_str!("support/chat_page.py");
    let address = format!("http://{}", server.address);
    let output = Command::new(python).args(["-c", script, &address, chromium.trim()]).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(out.trim(), "ok", "{err}");
}
