/** One request on its way through: what came in, and what the gates have established about it. */
import type { EpochMilliseconds, Milliseconds } from './clock.ts';
import type { HeaderFields, RawHeaders } from './headers.ts';
import type { MediaType } from './media-type.ts';
import type { Reason, Refusal } from './refusal.ts';
import type { RequestTarget } from './target.ts';

/** A certificate that a client showed in its TLS handshake, vouched for by the authorities of the port. */
export interface ClientCertificate {
  /** `DNS:…`, `URI:…`, `email:…`, `IP Address:…` of its alternative names, and `CN:…` of its subject. */
  readonly names: readonly string[];
  /** DER. */
  readonly raw: Buffer;
}

/** Why a certificate no longer authenticates its connection: its own time, or a change of the client CAs or revocation lists. */
export type CertificateEnd = Extract<Reason, 'certificate_expired' | 'client_trust_changed'>;

/** Who sent the request, after the trusted proxies were taken into account. */
export interface Client {
  /** The address that limits and logs go by. */
  readonly address: string;
  /** The socket's other end. */
  readonly peer: string;
  /** The peer is a proxy of `listen.trustedProxies`: its X-Forwarded-* may be believed. */
  readonly viaTrustedProxy: boolean;
  /** The peer is a proxy of `listen.trustedIdentityProxies`: it may say who the client is. */
  readonly viaIdentityProxy: boolean;
  /** How the client came, as far as it can be believed. */
  readonly scheme: 'http' | 'https';
  /** Of the connection itself. */
  readonly certificate?: ClientCertificate;
  /** Why the certificate of the connection no longer counts; there is no `certificate` then. */
  readonly certificateEnd?: CertificateEnd;
}

/** Takes content as it comes: write*, then exactly one of end and fail. */
export interface ContentConsumer {
  /** The chunk is the consumer's, to keep or to free. False asks for a pause until `resume` is called; what is read already still comes. */
  write(chunk: Buffer): boolean;
  end(): void;
  /** The content broke off, or came too slowly. */
  fail(reason: Reason): void;
}

/** Content that is passed on as it comes. */
export interface ContentStream {
  /** In bytes; undefined where it is not known before the end. */
  readonly length: number | undefined;
  /** Begins; called once. */
  start(consumer: ContentConsumer): void;
  resume(): void;
  /** Nobody takes more of it. */
  stop(): void;
}

/** The request's content, read or opened at most once, bounded. */
export interface RequestBody {
  /** The declared Content-Length in bytes; undefined for chunked; 0 where there is no content. */
  readonly declaredLength: number | undefined;
  /** Reads all of it, up to `maxBytes`; a refusal where it is too large, too slow or broken off. A second call gives the first's result. */
  read(maxBytes: number): Promise<Buffer | Refusal>;
  /** Opens it, to be passed on as it comes; a Buffer where nothing comes. Not after `read`. */
  open(): Buffer | ContentStream;
  /** Resolves when content that was opened as a stream begins to come, with a refusal where it never does; undefined where nothing is awaited. */
  arriving?(): Promise<Refusal | undefined> | undefined;
  /** What `read` gave; undefined as long as it has not. */
  readonly content?: Buffer | Refusal | undefined;
  /** How many bytes came in so far. */
  readonly received: number;
  /** Nothing is left to read, or so little that the connection is kept and the rest thrown away. */
  readonly isCheapToDrain: boolean;
  /** Gives the buffer's share of the common budget back; called once, when the exchange is over. */
  free(): void;
  /** Frees its memory as well, at once: `content` is gone. Only where none of it went to the app, as the connection there may still be writing it. */
  discard(): void;
}

/** One signature of the header's list, decoded. */
export interface ParsedSignature {
  readonly algorithm: string;
  readonly bytes: Buffer;
}

/** What the signature headers say, before anything is verified. */
export interface SignedHead {
  /** The delivery's id; undefined where no header has one. */
  readonly id: string | undefined;
  /** The timestamp's own text, which is what was signed; undefined where no header has one. */
  readonly timestampText: string | undefined;
  readonly timestamp: EpochMilliseconds | undefined;
  /** What the sender calls this kind of event, in headers that it does not sign; spellings that mean the same are one. */
  readonly kind?: string;
  /** The signatures to check, already decoded and counted. */
  readonly signatures: readonly ParsedSignature[];
}

/** Which event a verified delivery is. */
export interface EventIdentity {
  /** Shown to operators, and what `forget` takes; undefined where the sender gives none and signs nothing. */
  readonly id: string | undefined;
  /** Of all that was signed, where the signature does not cover the id: whoever holds one delivery could give it another. */
  readonly digest?: string;
  /** Of what was signed alone, where `digest` covers an unsigned kind of event as well. */
  readonly contentDigest?: string;
  /** Undefined where the sender signs none. */
  readonly timestamp: EpochMilliseconds | undefined;
}

/** What stands for an id where the sender gives none. */
export function toDigestId(digest: string): string {
  return `sha256-${digest}`;
}

/** A delivery whose signature held. */
export interface VerifiedDelivery extends EventIdentity {
  /** The configured name of the key that matched. */
  readonly keyName: string;
  /** The raw bytes that were signed. */
  readonly body: Buffer;
}

/** The right to hand one event to the app, held until it is settled exactly once. */
export interface Claim {
  /** Handled: remember the id for the retention. Never rejects; a store that is down is retried behind the scenes. */
  confirm(): void;
  /** Not handled: the sender's retry must get through. Never rejects, like confirm. */
  release(): void;
  /** Outcome unknown: let the lease run out, so that a retry never overlaps a slow handler. */
  hold(): void;
}

/** A span that somebody else recorded, as a message names it (W3C Trace Context). */
export interface SpanReference {
  /** 32 lower-case hex digits. */
  readonly traceId: string;
  /** 16 lower-case hex digits. */
  readonly spanId: string;
  readonly flags: number;
  readonly tracestate: string | undefined;
}

/** The trace that a request is part of; ids as in SpanReference. */
export interface RequestTrace {
  readonly traceId: string;
  /** What log lines name: the gate's own span, or, where nobody records it, the one that the app hangs on. */
  readonly spanId: string;
  /** What the app gets as its parent. */
  readonly appParentId: string;
  readonly flags: number;
  /** The gate's spans are kept and told. */
  readonly isRecorded: boolean;
  /** The caller's span, where its trace is continued. */
  readonly parentId: string | undefined;
  readonly tracestate: string | undefined;
  /** The caller's span, where it is only named. */
  readonly link: SpanReference | undefined;
}

/** The password that let a request in, for connections that outlive the request. */
export interface Login {
  /** Calls `end` once, when the user or the password is removed; now, if that has happened. The result stops watching. */
  onRevoked(end: () => void): () => void;
}

/** What the gates established, and the pipeline after them; each field is written in one place only, and read after it. */
export interface Facts {
  /** Where the content is signed and must have one reading. */
  mediaType?: MediaType;
  head?: SignedHead;
  delivery?: VerifiedDelivery;
  /** Who proved by a password who they are. */
  user?: string;
  /** Of that user; only where the client asks for another protocol or a tunnel. */
  login?: Login;
  /** The name of the client certificate that the route lets in. */
  certificateName?: string;
  claim?: Claim;
  /** Written once it is known whether the request is let through. */
  trace?: RequestTrace | undefined;
  /** When it went to the app, where the trace tells; monotonic. */
  sentAt?: Milliseconds;
  /** A newer event of the same resource was handled already; the route has it forwarded all the same. */
  isStale?: boolean;
  /** The store is down and the route forwards all the same: the event may be a repeat, or older than one that was handled. */
  isUnchecked?: boolean;
  /** Why the request would have been turned away, had its route not been told to observe only. */
  observed?: Refusal;
  /** How a destination of the forward proxy is reached: addresses that were checked, by a rule of its list. */
  way?: { readonly rule: string; readonly addresses: readonly string[] };
}

/** What is known of any request, even one whose head is refused. */
export interface Arrival {
  /** Unique to this request; it joins the sender's answer, the log line and the header the app gets. */
  readonly requestId: string;
  readonly method: string;
  readonly client: Client;
  readonly receivedAt: EpochMilliseconds;
  /** Monotonic. */
  readonly startedAt: Milliseconds;
}

/** The wish to go on in another protocol (RFC 9110 §7.8), which is the app's to grant. */
export interface UpgradeWish {
  /** As the client wrote it, for example `websocket`. */
  readonly protocol: string;
  /** Says that it is granted, by this status line and these fields, and gives what the client sends from then on. */
  grant(statusLine: string, fields: RawHeaders): ContentStream;
  /** Sends in the new protocol; false asks to wait for `onDrain`. */
  write(chunk: Buffer): boolean;
  onDrain(action: () => void): void;
  end(): void;
  destroy(): void;
}

/** One request as gates see it. */
export interface Exchange extends Arrival {
  readonly target: RequestTarget;
  readonly headers: HeaderFields;
  readonly body: RequestBody;
  readonly upgrade?: UpgradeWish;
  /** Where a client of the forward proxy wants to go. */
  readonly destination?: { readonly host: string; readonly port: number };
  readonly facts: Facts;
}
