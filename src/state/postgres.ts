/** Connections to PostgreSQL, and what went wrong with one in the words of an operator. */
import type { ClientConfig } from 'pg';
import pg from 'pg';
import type { Milliseconds } from '../core/clock.ts';
import { SidegateError, toErrorText } from '../core/errors.ts';
import { guardDecision } from '../core/safe-events.ts';
import type { Secret } from '../core/secret.ts';

/** A database, and the role that connects to it. */
export interface PostgresTarget {
  /** A host name, an address, or the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly password: Secret | undefined;
  /** Reads the password for a new connection; undefined if it cannot be read. */
  readonly readPassword?: () => Promise<Secret | undefined>;
  /** Undefined: without TLS. */
  readonly tls: PostgresTls | undefined;
}

/** `verify`: the issuer and the name of the certificate, the issuer alone, or nothing. The contents of files may differ at each access. */
export interface PostgresTls {
  readonly verify: 'full' | 'ca' | 'none';
  /** PEM; undefined: the CAs of the system. */
  readonly ca: string | undefined;
  readonly certificate: { readonly cert: string; readonly key: Secret } | undefined;
}

const CONNECT_TIMEOUT_MS: Milliseconds = 5_000;
/** For the reply to a query, if the network loses it. Longer than any `statement_timeout` that is set here. */
const REPLY_TIMEOUT_MS: Milliseconds = 30_000;

export function createPostgresClient(target: PostgresTarget): pg.Client {
  return new pg.Client(toClientConfig(target));
}

/** How pg connects. Everything is given, so that variables such as PGHOST change nothing. */
export function toClientConfig({ host, port, database, user, password, readPassword, tls }: PostgresTarget): ClientConfig {
  return {
    host,
    port,
    database,
    user,
    password: async () => ((await readPassword?.()) ?? password)?.expose().toString('utf8') ?? '',
    ssl: tls === undefined ? false : toTlsOptions(tls, host),
    application_name: 'sidegate',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: REPLY_TIMEOUT_MS,
    keepAlive: true,
  };
}

function toTlsOptions(tls: PostgresTls, host: string): Exclude<ClientConfig['ssl'], boolean | undefined> {
  return {
    // For the check of an IP address, which cannot be a server name.
    host,
    minVersion: 'TLSv1.2',
    rejectUnauthorized: tls.verify !== 'none',
    // For each connection of a pool, pg reads these again.
    get ca() {
      return tls.ca;
    },
    get cert() {
      return tls.certificate?.cert;
    },
    get key() {
      return tls.certificate?.key.expose().toString('latin1');
    },
    ...(tls.verify !== 'full' && { checkServerIdentity: guardDecision(() => undefined, undefined) }),
  };
}

/** Serialization failure, deadlock, and a key that another transaction inserted at the same time. */
const REPEATED: ReadonlySet<string> = new Set(['40001', '40P01', '23505']);

const MAX_TRIES = 5;

/** Runs a transaction, again if it failed only because of another one. `rollBack` is called before it is repeated. */
export async function repeatTransaction<T>(run: () => Promise<T>, rollBack?: () => Promise<unknown>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await run();
    } catch (thrown) {
      const isRepeatable = thrown instanceof pg.DatabaseError && REPEATED.has(thrown.code ?? '');
      if (tries === MAX_TRIES || !isRepeatable) throw thrown;
      await rollBack?.();
    }
  }
}

/** The address, without credentials. */
export function formatPostgres({ host, port, database }: PostgresTarget): string {
  return `PostgreSQL at ${host.includes(':') ? `[${host}]` : host}:${port}/${database}`;
}

const UNREACHABLE_HINT = 'start PostgreSQL, or correct the host, port, user or password of the URL';
const CA_HINT = 'set sslrootcert in the URL to the PEM file of the CA that issued the certificate of the server';
/** Replacements for the codes of system errors and of TLS. */
const CAUSES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EPIPE: 'connection closed',
  ETIMEDOUT: 'connecting timed out',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to the network',
  ENOENT: 'the socket does not exist',
  ENOTFOUND: 'the host name does not resolve',
  EAI_AGAIN: 'the host name does not resolve at the moment',
};
const TLS_ISSUER = /SELF_SIGNED|UNABLE_TO_VERIFY|UNABLE_TO_GET_ISSUER/;
/** How to fix an error, by its code in PostgreSQL, Node or TLS, or by its text. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  [TLS_ISSUER, CA_HINT],
  [/ALTNAME_INVALID/, 'use a host name in the URL that the certificate of the server contains'],
  [/CERT_HAS_EXPIRED/, 'renew the certificate of the server'],
  [/does not support SSL/i, 'enable TLS on the server, or set sslmode=disable on a network that you trust'],
  [/no encryption|SSL off/, 'set sslmode=verify-full in the URL: the server requires TLS'],
  [/\b28P01\b/, 'correct the user or the password in the URL'],
  [/\b28000\b/, 'allow the role and this address in pg_hba.conf, or correct the user in the URL'],
  [/\b3D000\b/, 'create the database, or correct its name in the URL'],
  [/row-level security/, 'give the role BYPASSRLS, or disable row-level security on the table (docs/outbox.md)'],
  [
    /\b42501\b/,
    'grant the role the rights that the documentation lists (docs/provider.md for the queue, docs/outbox.md for the outbox)',
  ],
  [/\b53300\b/, 'raise max_connections, or use a connection pooler'],
  [/\b53100\b/, 'free or enlarge the disk of the server'],
  [/read-only|during recovery/, 'this server is a read-only standby: use the address of the primary'],
  [/\b57P0[123]\b/, 'wait until PostgreSQL is ready; if it does not become ready, see its log'],
  [
    /^(?:0A|2[0-478]|3[89]|4[24]|P0)[0-9A-Z]{3}$/,
    'PostgreSQL rejects a statement: compare the tables, and their triggers and rules, with docs/outbox.md or docs/provider.md',
  ],
  [/\b(?:57014|55P03)\b/, 'another transaction holds a lock: find it in pg_stat_activity and pg_locks, and end it'],
];

/** The error for a failed connection or query: which database, why, and how to fix it. */
export function toPostgresError(thrown: unknown, target: PostgresTarget): PostgresError {
  if (thrown instanceof PostgresError) return thrown;
  const code = String((thrown as { readonly code?: unknown }).code ?? '');
  // A host name with several addresses: one error for each.
  const text = thrown instanceof AggregateError ? thrown.errors.map(toErrorText).join('; ') : toErrorText(thrown);
  const cause = (Object.hasOwn(CAUSES, code) ? CAUSES[code] : undefined) ?? text;
  const found = HINTS.find(([pattern]) => pattern.test(code) || pattern.test(text));
  return new PostgresError(`${formatPostgres(target)}: ${cause}`, found?.[1] ?? UNREACHABLE_HINT, thrown);
}

export interface ConnectionResult {
  readonly title: string;
  /** Undefined after a success. */
  readonly failure: string | undefined;
  readonly hint: string;
}

export class PostgresError extends SidegateError {
  readonly hint: string;

  constructor(message: string, hint: string, cause?: unknown) {
    super('system', 'postgres_unavailable', message, { cause });
    this.hint = hint;
  }
}
