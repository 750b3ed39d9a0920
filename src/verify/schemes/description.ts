/** A signature scheme as plain data. Presets and the config's `custom` have this form; compile.ts compiles it. */
import type { Milliseconds } from '../../core/clock.ts';
import type { CertificateDescription, JwtDescription, PublicKeyDescription, SecretTransform } from './key-description.ts';

/** How a signature is computed. With `token` there is no signature: the header contains the secret itself. */
export type Algorithm =
  | 'hmac-sha1'
  | 'hmac-sha256'
  | 'hmac-sha384'
  | 'hmac-sha512'
  | 'sha256-secret-first'
  | 'sha256-secret-last'
  | 'ed25519'
  | 'ecdsa-p256'
  | 'rsa-sha256'
  | 'rsa-sha512'
  | 'rsa-pss-sha256'
  | 'rsa-pss-sha512'
  | 'token';

/** How a secret's text is decoded into key bytes. */
export type SecretEncoding = 'utf8' | 'base64' | 'hex';

/** Encoding of a signature; `text` is for tokens only. `jwt`: the signature is a JSON Web Token (`jwt` in the description). */
export type SignatureEncoding = 'hex' | 'base64' | 'base64url' | 'text' | 'jwt';

/** A place in the body: a path in JSON, or a form field, with a path if its value is JSON. */
export type BodyPlace = { readonly json: string } | { readonly form: string; readonly path?: string | undefined };

/** A place with one value. `signaturePart` stands for one of the parts that a signature header consists of, counted from 0. */
export type Place = { readonly header: string } | { readonly query: string } | { readonly signaturePart: number } | BodyPlace;

/** Type of a JSON value; a number or boolean is signed as it is written. */
export type FieldType = 'string' | 'integer' | 'boolean';

/** How a value is signed. */
export interface FieldOptions {
  /** Default: string. */
  readonly type?: FieldType;
  /** A missing value is signed as empty text. */
  readonly optional?: true;
  /** Its text may contain what separates it from the next piece. At most one piece of a signed string can have this. */
  readonly mayContainSeparator?: true;
  /** A backslash is written before each backslash, and before each first character of the separator. */
  readonly escape?: 'backslash';
}

/** A signed value. */
export type FieldPiece = Place & FieldOptions;

/** The request headers that this header lists, sorted, each as `name:value`, separated by semicolons. */
export interface HeaderListPiece {
  readonly headersIn: string;
}

/**
 * All fields of a URL-encoded form but the signature, sorted by name, each as `name=value`, with `&` between them. The fields that are
 * listed here are not signed, and must have these values.
 */
export interface SortedFormPiece {
  readonly sortedForm: Readonly<Record<string, string>>;
}

/** The SHA-256 of the body. */
export interface BodyDigestPiece {
  readonly bodySha256: 'hex' | 'base64';
}

/**
 * A signed part. `form` stands for the parameters of a form body, sorted, with names and values concatenated; `target` for path and
 * query. `bodyWithoutSignature` and `urlWithoutSignature` omit the field or parameter that contains the signature. `crc32` is the CRC-32
 * of the body in decimal digits. `receiverId` is the ID of the receiver at the sender: the config of a route replaces it by its text.
 */
export type Piece =
  | 'id'
  | 'timestamp'
  | 'body'
  | 'bodyWithoutSignature'
  | 'method'
  | 'url'
  | 'urlWithoutSignature'
  | 'target'
  | 'form'
  | 'crc32'
  | 'receiverId'
  | { readonly text: string }
  | FieldPiece
  | HeaderListPiece
  | SortedFormPiece
  | BodyDigestPiece;

/** The entry of the signature header's list with this prefix. */
export interface EntrySource {
  readonly entry: string;
  /** It is the first entry of the list, so that its prefix can be empty. */
  readonly first?: true;
}

/** Where a timestamp is. `claim` stands for a path in a JSON Web Token. */
export type TimestampSource = EntrySource | { readonly claim: string } | Place;

/** Where an ID is: a place, one part of a header, or the text of an element of an XML body. */
export type IdSource =
  | (Place & { readonly part?: HeaderPart | undefined })
  | { readonly xml: string }
  | { readonly claim: string };

/** One part of a header's value, counted from 0. */
export interface HeaderPart {
  readonly separator: string;
  readonly index: number;
}

/** One kind of signature that the header may contain. */
export interface SignatureForm {
  /** Required prefix of the encoded bytes. */
  readonly prefix: string;
  readonly algorithm: Algorithm;
}

/** How a sender verifies, before or between deliveries, that the endpoint belongs to its receiver. */
export type HandshakeName =
  | 'slack'
  | 'zoom'
  | 'meta'
  | 'x'
  | 'twitch'
  | 'discord'
  | 'microsoft-graph'
  | 'cloudevents'
  | 'asana'
  | 'braintree'
  | 'dropbox'
  | 'event-grid'
  | 'front'
  | 'linkedin'
  | 'monday'
  | 'notion'
  | 'nylas'
  | 'okta'
  | 'oura'
  | 'ringcentral'
  | 'smartcar'
  | 'statsig'
  | 'strava'
  | 'trello'
  | 'woocommerce';

/** Where signatures are, and their format. */
export interface SignatureDescription {
  /** Empty if the signature is in the query or in the body. */
  readonly header: string;
  /** Further headers with signatures; at least one of all must be present. */
  readonly moreHeaders?: readonly string[];
  /** Query parameter with the signature. */
  readonly query?: string;
  /** Path of the signature in a JSON body. */
  readonly json?: string;
  /** Form field with the signature. */
  readonly form?: string;
  /** Path in the JSON value of that form field. */
  readonly path?: string;
  /** Path of the tokens in a JSON body, with `[*]` for each item of a list; each token must equal the secret. */
  readonly content?: string;
  readonly encoding: SignatureEncoding;
  /** Separator of the entries, if the value can contain several. */
  readonly list?: ListSeparator;
  /** If each entry has several parts, such as the public key and the signature. */
  readonly parts?: {
    readonly separator: string;
    /** The number of parts; entries with another number are ignored. */
    readonly count: number;
    /** Which part is the signature, counted from 0. */
    readonly signature: number;
  };
  /** Entries of other forms are ignored. */
  readonly forms: readonly SignatureForm[];
}

/** Separators of lists. */
export type ListSeparator = ',' | ';' | ' ' | '&' | '|' | ':';

/** Whether requests carry the secret itself in place of a signature. */
export function isToken({ content, forms }: SignatureDescription): boolean {
  return content !== undefined || forms.some(({ algorithm }) => algorithm === 'token');
}

/** Whether what authenticates a request can be sent with another body: the secret itself, or a JSON Web Token that does not sign the body. */
export function isBearer({ signature, jwt, signed }: SchemeDescription): boolean {
  return (signature !== undefined && isToken(signature)) || (jwt !== undefined && signed.length === 0);
}

/** The form of a timestamp: Unix time, RFC 3339 with any offset, or an HTTP date (RFC 9110 §5.6.7). */
export type TimestampUnit = 's' | 'ms' | 'rfc3339' | 'http-date';

/** The sender's timestamp. */
export interface TimestampDescription {
  readonly from: TimestampSource;
  readonly unit: TimestampUnit;
}

/** The sender's secrets. */
export interface SecretDescription {
  /** Used if the config sets no encoding. */
  readonly encoding: SecretEncoding;
  /** Usual start of the secrets, which is part of the key. A secret without it is probably the wrong one and gets a warning. */
  readonly usualStart?: string;
  /** Prefix that is removed before decoding; optional if the config sets `encoding`. */
  readonly prefix?: string;
  /** The key is this digest of the secret. */
  readonly digest?: 'sha1' | 'sha256';
  readonly transform?: SecretTransform;
}

/** Required shape of a verified body. */
export type ContentShape = 'json-object' | 'json-array' | 'json-object-or-array';

/** The sender, for the docs and for errors about its keys. */
export interface SenderDescription {
  readonly title: string;
  /** URL of the sender's documentation of the signature. */
  readonly docs: string;
  /** The kind of key, and where to find it at the sender. */
  readonly key: string;
}

/** Maximum difference between a timestamp and the current time. */
export interface Tolerance {
  readonly past: Milliseconds;
  readonly future: Milliseconds;
}

/** A signature scheme. */
export interface SchemeDescription {
  /** The name in the config. */
  readonly name: string;
  readonly from?: SenderDescription;
  /** Absent if nothing is signed; another gate of the route must then authenticate the sender. */
  readonly signature?: SignatureDescription;
  /** The body contains its signature, and a separate gate checks it. */
  readonly isSignedInContent?: true;
  /** In order; empty for tokens. */
  readonly signed: readonly Piece[];
  /** Separator between two pieces. */
  readonly separator: string;
  /** The signature covers only some fields of the body, or nothing of it. */
  readonly unsignedBody?: true;
  /** A form may have only the signed fields and the signature. */
  readonly onlySignedFields?: true;
  /** The only field of a form, whose value is signed in place of the body. */
  readonly contentField?: string;
  readonly timestamp?: TimestampDescription;
  /** Default: the digest of the signed bytes identifies the event. With `[*]` in a JSON path, all items' IDs together do. */
  readonly id?: IdSource;
  /** The sender signs neither an ID nor a time, and can send the same bytes for different events: the digest does not prove that an event was handled. */
  readonly repeatsBytes?: true;
  /** Values that are new in each attempt to deliver an event and mean nothing to apps, beside the signature and a signed time. */
  readonly perAttempt?: readonly Place[];
  /** Unsigned headers that apps read, beside those with usual names (gateway/pipeline/claims.ts). All attempts of an event have the same values. */
  readonly comparedHeaders?: readonly string[];
  /** Unsigned headers that distinguish kinds of events with possibly identical bodies; each kind counts as a separate event. */
  readonly kind?: readonly string[];
  readonly secret: SecretDescription;
  readonly publicKey?: PublicKeyDescription;
  readonly certificate?: CertificateDescription;
  /** Default of `jwks` in the config, if a route has no keys. */
  readonly jwksUrl?: string;
  /** For `encoding: jwt`. */
  readonly jwt?: JwtDescription;
  /** Default of `tolerance` in the config. */
  readonly tolerance: Tolerance;
  /** Default of `contentTypes` in the config. */
  readonly contentTypes: readonly string[];
  /** By which the sender may send deliveries. Default: POST for a preset of one sender, otherwise unknown. */
  readonly methods?: readonly string[];
  /** The signed URL may include the default port. */
  readonly isPortOptional?: true;
  /** Query parameter with the hex SHA-256 of the body, which replaces the `form` piece. */
  readonly contentDigestParameter?: string;
  /** Characters whose percent-encoding in the URL is decoded before signing. */
  readonly decodedInUrl?: string;
  /**
   * Other bodies are rejected even if they are signed. The sender may also sign things that are not events (X signs any token in its
   * CRC), and without a separator the shape is what keeps bytes from moving between the body and the signed part next to it.
   */
  readonly contentShape?: ContentShape;
  /** Alternative names of these headers (name → alternative). If both are present, their values must be equal. */
  readonly twins?: Readonly<Record<string, string>>;
  /** The sender may also use the alternative names alone. */
  readonly acceptsTwins?: true;
  /** Default of `handshake` in the config. */
  readonly handshake?: HandshakeName;
  /** Minimum length of a secret in bytes according to the sender; shorter ones get a warning. */
  readonly leastSecretBytes?: number;
}

/** Replaces the piece `receiverId` by the ID under which the sender knows the receiver, when the config is loaded. */
export function withReceiverId(description: SchemeDescription, id: string): SchemeDescription {
  const signed = description.signed.map((piece): Piece => (piece === 'receiverId' ? { text: id } : piece));
  return { ...description, signed };
}
