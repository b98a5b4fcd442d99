//! Errors of OpenAI's API: a status and a document.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use panoply::Error;
use panoply::llm::SubmitError;
use serde_json::{Value, json};

/// Seconds after which a refused client may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// An error in the form of OpenAI's API.
#[derive(Debug)]
pub struct ApiError {
    pub status: StatusCode,
    /// A short name that programs compare.
    pub code: Option<&'static str>,
    /// The parameter that is wrong.
    pub param: Option<String>,
    pub message: String,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code: Some(code), param: None, message: message.into() }
    }

    pub fn invalid(param: Option<&str>, message: impl Into<String>) -> ApiError {
        let param = param.map(str::to_string);
        ApiError { status: StatusCode::BAD_REQUEST, code: None, param, message: message.into() }
    }

    pub fn no_such_model(wanted: &str, name: &str) -> ApiError {
        let message = format!("the model `{wanted:.100}` is not served here; the name is `{name}`");
        ApiError {
            param: Some("model".to_string()),
            ..ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message)
        }
    }

    pub fn timeout() -> ApiError {
        let message = "the request took longer than the server allows; ask for fewer tokens";
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
    }

    /// A request that failed while it ran.
    pub fn failed(error: &Error) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "generation_failed", error.to_string())
    }

    /// The error as a document.
    pub fn document(&self) -> Value {
        let kind = if self.status.is_server_error() { "server_error" } else { "invalid_request_error" };
        let kind = if self.status == StatusCode::TOO_MANY_REQUESTS { "rate_limit_error" } else { kind };
        json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> ApiError {
        let message = error.to_string();
        match error {
            SubmitError::Invalid(error) => ApiError::invalid(None, error.to_string()),
            SubmitError::Full => ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message),
            SubmitError::Stopped => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = document(self.status, &self.document());
        let waits = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        if waits.contains(&self.status) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A response with a JSON document.
pub fn document(status: StatusCode, document: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], document.to_string()).into_response()
}
