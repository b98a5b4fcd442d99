//! Many requests at once: the result of each is that of the model alone, and no place is lost.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use panoply_llm::{
    Completion, Engine, EngineOptions, Event, EventStream, FinishReason, Message, Model, ModelOptions, Prompt, Request,
    Sampling, SubmitError, TokenLogprob,
};
use panoply_tensor::Device;

use crate::fixtures::path;

fn model() -> Arc<Model> {
    Arc::new(Device::get("cpu").unwrap().scope(|| Model::open(&path("chat.gguf"), &ModelOptions::default()).unwrap()))
}

fn engine(model: &Arc<Model>, max_concurrent: usize, max_queue: usize) -> Engine {
    Engine::start(model.clone(), EngineOptions { max_concurrent, max_queue }).unwrap()
}

/// Ids that never end the text, so that answers have the wanted length.
fn endless(model: &Model) -> BTreeMap<u32, f32> {
    let end = (0..model.config().vocab as u32).filter(|id| model.tokenizer().is_end(*id));
    end.map(|id| (id, f32::NEG_INFINITY)).collect()
}

/// Requests of all kinds: short and longer than a piece, sampled and greedy, with penalties and stop strings.
fn requests<'a>(model: &Model, messages: &'a [Message], tokens: &'a [u32]) -> Vec<Request<'a>> {
    let biased = |request: Request<'a>| Request { logit_bias: endless(model), logprobs: Some(3), ..request };
    let mut requests = vec![
        biased(Request { max_tokens: Some(20), seed: 1, ..Request::new("the quick") }),
        biased(Request { max_tokens: Some(12), sampling: Sampling::greedy(), ..Request::chat(messages) }),
        biased(Request { max_tokens: Some(9), seed: 3, prompt: Prompt::Tokens(tokens), ..Request::new("") }),
        biased(Request { max_tokens: Some(1), seed: 4, prompt: Prompt::Tokens(&tokens[..17]), ..Request::new("") }),
        biased(Request { max_tokens: Some(30), seed: 5, prompt: Prompt::Tokens(&tokens[3..4]), ..Request::new("") }),
        Request { max_tokens: Some(30), seed: 6, stop: vec!["e".into(), "o".into()], ..Request::chat(messages) },
        Request { max_tokens: Some(0), ..Request::new("nothing") },
    ];
    let sampling = Sampling { temperature: 1.3, repetition_penalty: 1.2, presence_penalty: 0.5, ..Sampling::default() };
    requests.push(biased(Request { max_tokens: Some(15), seed: 7, sampling, ..Request::new("hello world") }));
    requests
}

#[derive(Debug, PartialEq)]
struct Answer {
    text: String,
    logprobs: Vec<TokenLogprob>,
    finish_reason: FinishReason,
    completion_tokens: usize,
}

fn collect(events: EventStream) -> (Answer, Completion) {
    let (mut text, mut logprobs, mut end) = (String::new(), Vec::new(), None);
    for event in events {
        assert!(end.is_none(), "nothing follows the end");
        match event {
            Event::Text { text: piece, logprobs: more } => {
                text += &piece;
                logprobs.extend(more);
            }
            Event::Finished(completion) => end = Some(completion),
            Event::Failed(error) => panic!("{error}"),
        }
    }
    let end = end.expect("an answer ends");
    let Completion { finish_reason, completion_tokens, .. } = end;
    (Answer { text, logprobs, finish_reason, completion_tokens }, end)
}

/// The answer of [`Model::generate`], with an empty cache.
fn alone(model: &Model, request: &Request<'_>) -> Answer {
    let mut generation = model.generate(request).unwrap();
    let text = (&mut generation).collect::<Result<String, _>>().unwrap();
    Answer {
        text,
        logprobs: generation.logprobs().to_vec(),
        finish_reason: generation.finish_reason().unwrap(),
        completion_tokens: generation.tokens().len(),
    }
}

#[test]
fn answers_are_the_same_bits_alone_and_among_others() {
    let model = model();
    let messages = [Message::new("user", "hello world, the quick brown fox jumps over the lazy dog")];
    let tokens: Vec<u32> = (0..70).map(|n| 20 + n * 7 % 200).collect();
    let requests = requests(&model, &messages, &tokens);
    let expected: Vec<Answer> = requests.iter().map(|request| alone(&model, request)).collect();
    assert!(expected.iter().all(|answer| answer.completion_tokens > 0 || answer.text.is_empty()));
    // One after the other, where caches of earlier requests are reused; then all at once, more than fit, in several orders.
    for max_concurrent in [1, 2, 3, 8] {
        let engine = engine(&model, max_concurrent, 64);
        for turn in 0..4 {
            let order: Vec<usize> = (0..requests.len()).map(|n| (n * (2 * turn + 1) + turn) % requests.len()).collect();
            let streams: Vec<(usize, EventStream)> =
                order.iter().map(|n| (*n, engine.generate(&requests[*n]).unwrap())).collect();
            for (n, stream) in streams {
                let (answer, completion) = collect(stream);
                assert_eq!(answer, expected[n], "request {n} of {max_concurrent} at once");
                assert!(completion.reused_tokens < completion.prompt_tokens);
            }
        }
        // A step sends its answers before it is counted.
        assert!(engine.wait_idle(Duration::from_secs(60)));
        let stats = engine.stats();
        assert_eq!((stats.finished, stats.failed, stats.cancelled), (4 * requests.len() as u64, 0, 0));
    }
}

#[test]
fn next_request_of_a_conversation_computes_only_new_tokens() {
    let model = model();
    let engine = engine(&model, 2, 4);
    let mut messages = vec![Message::new("user", "hello world")];
    let ask = |messages: &[Message]| {
        let sampling = Sampling::greedy();
        collect(engine.generate(&Request { max_tokens: Some(6), sampling, ..Request::chat(messages) }).unwrap())
    };
    let (first, started) = ask(&messages);
    assert_eq!(started.reused_tokens, 0);
    // Another conversation takes the other slot.
    let (_, counts) = ask(&[Message::new("user", "zebra")]);
    assert!(counts.reused_tokens < counts.prompt_tokens);
    messages.extend([Message::new("assistant", &first.text), Message::new("user", "hello")]);
    let (second, counts) = ask(&messages);
    // All but the last token of the first prompt, which the text of the answer can change.
    assert!(
        (started.prompt_tokens - 1..counts.prompt_tokens).contains(&counts.reused_tokens),
        "{started:?}, {counts:?}"
    );
    let sampling = Sampling::greedy();
    assert_eq!(second, alone(&model, &Request { max_tokens: Some(6), sampling, ..Request::chat(&messages) }));
}

#[test]
fn requests_beyond_the_queue_are_refused_and_dropped_ones_free_their_place() {
    let model = model();
    let engine = engine(&model, 1, 1);
    let long = Request { logit_bias: endless(&model), ..Request::new("the") };
    let mut running = engine.generate(&long).unwrap();
    // It has a slot now.
    assert!(matches!(running.next(), Some(Event::Text { .. })));
    let waiting = engine.generate(&long).unwrap();
    assert!(matches!(engine.generate(&long), Err(SubmitError::Full)));
    assert_eq!((engine.stats().running, engine.stats().refused), (1, 1));
    // One that waits and one that runs go away; the next is served.
    drop(waiting);
    drop(running);
    let short = Request { max_tokens: Some(3), ..long.clone() };
    let mut next = engine.generate(&short);
    while let Err(SubmitError::Full) = next {
        std::thread::yield_now();
        next = engine.generate(&short);
    }
    assert_eq!(collect(next.unwrap()).0, alone(&model, &short));
    assert!(engine.wait_idle(Duration::from_secs(60)));
    assert_eq!((engine.stats().cancelled, engine.stats().finished), (2, 1));
    engine.stop();
    assert!(matches!(engine.generate(&short), Err(SubmitError::Stopped)));
}

#[test]
fn wrong_requests_and_limits_are_one_sentence() {
    let model = model();
    let engine = engine(&model, 1, 0);
    let refused = |request: &Request<'_>| match engine.generate(request) {
        Err(SubmitError::Invalid(error)) => error.message().to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(&Request { prompt: Prompt::Tokens(&[]), ..Request::new("") }),
        "the prompt has no tokens; give a text to continue"
    );
    assert!(
        refused(&Request { prompt: Prompt::Tokens(&[9999]), ..Request::new("") }).contains("token 9999 is not one of")
    );
    assert!(refused(&Request::new(&"hello ".repeat(400))).contains("the context 256 positions"));
    let wrong = Engine::start(model.clone(), EngineOptions { max_concurrent: 33, max_queue: 0 });
    assert_eq!(wrong.err().unwrap().message(), "33 requests at once; the number is from 1 to 32");
}

#[test]
fn nan_logits_fail_requests_but_not_the_engine() {
    // The last tensor of the file is made NaN, so no logit is a number.
    let mut bytes = std::fs::read(path("tiny-F16.gguf")).unwrap();
    let end = bytes.len();
    bytes[end - 64..].fill(0xff);
    let file = std::env::temp_dir().join(format!("panoply-llm-engine-{}.gguf", std::process::id()));
    std::fs::write(&file, bytes).unwrap();
    let open = || Model::open(&file, &ModelOptions::default()).unwrap();
    let model = Arc::new(Device::get("cpu").unwrap().scope(open));
    std::fs::remove_file(&file).unwrap();
    let engine = engine(&model, 2, 2);
    for _ in 0..3 {
        let events: Vec<Event> = engine.generate(&Request::new("the")).unwrap().collect();
        let [Event::Failed(error)] = &events[..] else { panic!("{events:?}") };
        assert!(error.message().contains("not finite"), "{error}");
    }
    assert!(engine.wait_idle(Duration::from_secs(60)));
    assert_eq!(engine.stats().failed, 3);
}

/// A thread that ended does not leave those waiting who wait for it.
#[test]
fn waiting_ends_with_the_thread() {
    let engine = engine(&model(), 8, 8);
    // The request runs before the steps that only compile.
    let _ticket = engine.submit(&Request::new("the"), |_| panic!("planted in a sink")).unwrap();
    let error = engine.wait_until_warm().unwrap_err();
    assert_eq!(error.message(), "the thread that runs the model ended");
    assert!(matches!(engine.submit(&Request::new("the"), |_| {}), Err(SubmitError::Stopped)));
}

/// Runs in a separate process, because plans and memory are counted per process.
#[test]
fn no_plan_is_made_and_no_cache_is_copied_once_the_engine_is_warm() {
    const ALONE: &str = "PANOPLY_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = ["--exact", "engine::no_plan_is_made_and_no_cache_is_copied_once_the_engine_is_warm", "--nocapture"];
        let output = Command::new(std::env::current_exe().unwrap()).args(test).env(ALONE, "1").output().unwrap();
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let model = model();
    let engine = engine(&model, 8, 64);
    engine.wait_until_warm().unwrap();
    let device = Device::get("cpu").unwrap();
    let messages = [Message::new("user", "hello world, the quick brown fox jumps over the lazy dog")];
    let tokens: Vec<u32> = (0..70).map(|n| 20 + n * 7 % 200).collect();
    let (plans, allocated) = (panoply_tensor::plan_cache_stats().misses, device.memory_stats().allocated);
    device.reset_peak_memory_stats();
    for _ in 0..3 {
        let requests = requests(&model, &messages, &tokens);
        let streams: Vec<EventStream> = requests.iter().map(|request| engine.generate(request).unwrap()).collect();
        streams.into_iter().for_each(|stream| drop(collect(stream)));
    }
    assert_eq!(panoply_tensor::plan_cache_stats().misses, plans);
    // Keys or values of one block.
    let config = model.config();
    let array = (config.kv_heads * 8 * model.context_length() * config.head_dim * 4) as u64;
    let grown = device.memory_stats().peak_allocated.saturating_sub(allocated);
    assert!(grown < array, "{grown} bytes were allocated beside the cache, whose arrays have {array}");
}
