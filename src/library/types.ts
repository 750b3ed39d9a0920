/** The types of `@sidegate/sidegate/verify`. They name no type of Node, so that they also fit workers and browsers. */
import type { HandshakeName, SchemeDescription, SecretEncoding } from '../verify/schemes/description.ts';

/** A time span: `5m`, `90s`, `3d`, or milliseconds. */
export type Duration = string | number;

/** A secret of the sender, or its public key. */
export interface SecretOptions {
  /** As the sender shows it: `whsec_…`, hex, a public key in PEM, and so on. */
  readonly secret: string;
  /** Reported as `keyName` for deliveries that it verifies. Default: `secret-1`, `secret-2` and so on. */
  readonly name?: string | undefined;
  /** How the text becomes bytes. Default: as the scheme says. */
  readonly encoding?: SecretEncoding | undefined;
  /** It verifies nothing from then on: for the old secret of a rotation. Milliseconds since 1970. */
  readonly notAfter?: number | undefined;
}

/** Settings for a sender that verifies a URL before it sends deliveries. */
export interface HandshakeSettings {
  /** Default: the handshake of the scheme. */
  readonly type?: HandshakeName | undefined;
  /** The token by which the sender's request is recognized, for senders that have one (`meta`, `strava`), or in the URL. */
  readonly verifyToken?: string | undefined;
  /** The query parameter with the token, for senders that have none. */
  readonly parameter?: string | undefined;
  /** For `cloudevents`: the accepted origins. */
  readonly allowedOrigins?: readonly string[] | undefined;
  /** For `cloudevents`: requests per minute. */
  readonly allowedRate?: number | undefined;
  /** For `braintree`: the public key beside the private one. */
  readonly publicKey?: string | undefined;
  /**
   * Called with a secret that a sender chose and sent (Notion). Anyone may have sent it, so it verifies nothing by itself. Nothing waits for it: an error of it
   * loses the secret.
   */
  readonly onOfferedToken?: ((token: string) => void) | undefined;
}

/** The result of a claim: `remainingMs` of the lease or the retention, `fingerprint` as it was claimed or confirmed with. */
export type StoreClaimResult =
  | { readonly state: 'new' }
  | { readonly state: 'in-progress' | 'handled'; readonly remainingMs: number; readonly fingerprint: string };

/** One claim of a key. Key, token and fingerprint are printable ASCII without spaces, and short. */
export interface StoreClaim {
  readonly key: string;
  /** Unique to this claim: only it may confirm or release. */
  readonly token: string;
  readonly fingerprint: string;
  readonly leaseMs: number;
}

/**
 * Remembers events. Each method must be atomic. A rejection, or no reply within 5 s, makes `verify` resolve with `store_unavailable` (503), so that the
 * sender retries.
 */
export interface EventStore {
  /** Claims the key for `leaseMs`, unless it is claimed or handled. An expired claim counts as absent. */
  claim(claim: StoreClaim): Promise<StoreClaimResult>;
  /**
   * Records the key as handled for `retentionMs` if `token` holds the claim, or if nothing is stored for the key. False, and no change, if
   * another token holds the claim or the key is already handled.
   */
  confirm(key: string, token: string, fingerprint: string, retentionMs: number): Promise<boolean>;
  /** Removes the claim if `token` holds it; otherwise false, and no change. */
  release(key: string, token: string): Promise<boolean>;
}

/** How events are handled once. */
export interface DedupSettings {
  readonly store: EventStore;
  /** How long a handled event is remembered: at least the tolerance in both directions and 5 minutes. Default: 3d. */
  readonly retention?: Duration | undefined;
  /** How long a claim lasts that is neither confirmed nor released. It must be longer than the handler takes. Default: 60s. */
  readonly lease?: Duration | undefined;
  /** For a delivery whose event is being handled: wait for the outcome, or respond with 503 at once. Default: wait. */
  readonly inProgress?: 'wait' | 'reject' | undefined;
  /** Default: 4s. */
  readonly maxWait?: Duration | undefined;
  /** For an ID that the signature does not cover: `trust` handles a captured delivery again under each invented ID. Default: check. */
  readonly unsignedId?: 'check' | 'trust' | undefined;
  /**
   * Separates the events of several verifiers in one store. Default: the name of the scheme and a digest of the last secret, so that events are
   * forgotten when that changes.
   */
  readonly namespace?: string | undefined;
}

/** The settings of a verifier. */
export interface VerifierOptions {
  /** The name of a preset, such as `stripe`; or the description of a scheme, in the form of the presets. */
  readonly scheme: string | SchemeDescription;
  /** The secrets or public keys, tried in order. During a rotation, list the new and the old one. */
  readonly secrets: readonly (string | SecretOptions)[];
  /** Maximum difference between the timestamp and the current time. Default: as the scheme says, usually 5m. */
  readonly tolerance?: Duration | { readonly past: Duration; readonly future: Duration } | undefined;
  /** Forwards each event once. Default: duplicates are not detected. */
  readonly dedup?: EventStore | DedupSettings | undefined;
  /** Default: the handshake of the scheme. */
  readonly handshake?: 'off' | HandshakeSettings | undefined;
  /** Maximum size of a body in bytes. Default: 1 MiB. */
  readonly maxBody?: number | undefined;
  /** Accepted media types. Default: those of the scheme. */
  readonly contentTypes?: readonly string[] | undefined;
  /** Accepts query strings that the signature does not cover. Default: false. */
  readonly allowQuery?: boolean | undefined;
  /** Scheme and host of the URL that the sender calls, for schemes that sign the URL: `https://hooks.example.com`. */
  readonly publicUrl?: string | undefined;
  /** `user:password` of that URL, for senders that sign them. */
  readonly urlCredentials?: string | undefined;
  /** The ID under which the sender knows the receiver, for schemes that sign it (`paypal`). */
  readonly receiverId?: string | undefined;
  /**
   * Accepts a signature over a CRC-32 of the body (`paypal`), with `dedup`. Insecure: anyone who has a signed delivery that was not handled yet can
   * write another body for its signature, so the app must read the event from the API of the sender, by its ID. Default: false.
   */
  readonly allowWeakDigest?: boolean | undefined;
  /** Called when the store fails or is full: for a claim, whose event gets 503, and for a settlement after the response of `handle` is known. Default: nothing. */
  readonly onStoreError?: ((error: unknown) => void) | undefined;
  /** Called with each delivery that `handle` rejects, for the log. Default: nothing. */
  readonly onRejected?: ((rejected: Omit<RejectedDelivery, 'response'>) => void) | undefined;
  /** The current time in milliseconds since 1970. Default: that of the platform. */
  readonly now?: (() => number) | undefined;
}

/** A request that is not a Request. */
export interface RawRequest {
  /** Default: POST. */
  readonly method?: string | undefined;
  /** Absolute, or from the path on. Default: `/`. */
  readonly url?: string | undefined;
  /** An array of pairs keeps repeated headers, which an object and Headers join. */
  readonly headers:
    | Headers
    | readonly (readonly [string, string])[]
    | Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Exactly the bytes that were received, or a stream of them: a body that was parsed and written again has another signature. */
  readonly body: Uint8Array | ArrayBuffer | string | AsyncIterable<Uint8Array>;
}

/** A delivery that is verified, and claimed if the verifier has a store. */
export interface VerifiedDelivery {
  readonly ok: true;
  /** Undefined if the sender gives none and signs nothing. `sha256-…`: the digest of what was signed stands for the ID. */
  readonly eventId: string | undefined;
  /** The type of the event, if unsigned headers name it; normalized. */
  readonly kind: string | undefined;
  /** The bytes that were signed. */
  readonly body: Uint8Array<ArrayBuffer>;
  /** The signed time, in milliseconds since 1970. */
  readonly timestamp: number | undefined;
  /** The name of the secret that verified the delivery. */
  readonly keyName: string;
  /** The body as text in UTF-8. */
  text(): string;
  /** The body as JSON. Throws a SyntaxError if it is not JSON, or has more than 1,000 levels beside an escape. */
  json(): unknown;
  /** The event was handled: later deliveries of it are duplicates. Without a store it does nothing, as `release`. */
  confirm(): Promise<void>;
  /** The event was not handled: the sender's retry is verified again. */
  release(): Promise<void>;
}

/** A request that must not be handled. Its `response` is what the sender must get. */
export interface RejectedDelivery {
  readonly ok: false;
  readonly status: number;
  /** The code of the refusal (docs/refusals.md), such as `signature_mismatch`; also `duplicate` and `handshake`, whose status is 200. */
  readonly code: string;
  /** More specific than the code, for logs. */
  readonly reason: string;
  /** For logs only: it may help an attacker. It contains no secret. */
  readonly detail: string | undefined;
  readonly response: Response;
}

/** The result of a verification. */
export type VerifyResult = VerifiedDelivery | RejectedDelivery;

/** A handler's result. A status other than 2xx means that the event was not handled. */
// biome-ignore lint/suspicious/noConfusingVoidType: a function without a result has the type void.
export type Handled = Response | undefined | void;

/** Verifies the deliveries of one sender. */
export interface Verifier {
  /** Checks the settings now, which otherwise happens with the first request. Resolves with warnings; rejects with VerifierError. */
  ready(): Promise<readonly string[]>;
  /** Verifies a request. Rejects for wrong settings only. A body that was read or parsed before has a result with the status 500. */
  verify(request: Request | RawRequest): Promise<VerifyResult>;
  /**
   * Verifies a request, runs `handler` for a valid delivery, and settles its claim. The handler returns the response, or nothing for a 204.
   * A 2xx confirms the claim; another status or an error releases it. The error is thrown again.
   */
  handle(request: Request | RawRequest, handler: (delivery: VerifiedDelivery) => Handled | Promise<Handled>): Promise<Response>;
}
