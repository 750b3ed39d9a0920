/** The environment of the HTTP Basic benchmarks: the users' files, the requests, and an app with a file to download and upload. */
import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { toNginx, toNginxHead, toNginxSpools } from '../bench-environment.ts';
import { findFreePort, OTHER_CORE } from '../children.ts';
import { withProcessGroup } from '../process-group.ts';
import { makePassword, makeUsers, toAuthorization, type Users, writeRequests, writeUsers } from './users.ts';

/** The environment of one benchmark. */
export interface BasicEnvironment {
  readonly folder: string;
  readonly appPort: number;
  readonly users: Users;
  /** The file to download and upload. */
  readonly transfer: { readonly file: string; readonly bytes: number };
  /** Files of requests. */
  readonly requests: {
    /** Requests of each user in turn. */
    readonly known: string;
    readonly nobody: string;
    /** Wrong passwords of one user, from one address. */
    readonly guessesOfOne: string;
    /** The same, each from a different address. */
    readonly guessesOfMany: string;
  };
  readonly close: () => Promise<void>;
}

/** The app's response to all requests that are not transfers. */
export const APP_ANSWER = '{"ok":true}';

const TRANSFER_BYTES = 256 * 2 ** 20;
/** More than any rival hashes in one run, so that each guess is new. */
const GUESSES = 20_000;
/** TEST-NET-2 and the network for benchmarks: addresses that are not in use. */
const ONE_ADDRESS = '198.51.100.7';
const MANY_ADDRESSES = '198.18';

/** Creates the users and starts the app. */
export function openBasicEnvironment(): Promise<BasicEnvironment> {
  return withProcessGroup(async (group) => {
    const { folder } = group;
    const users = await makeUsers();
    const appPort = await findFreePort();
    const file = join(folder, 'transfer.bin');
    writeFileSync(file, '');
    truncateSync(file, TRANSFER_BYTES);
    await group.start(toNginx(folder, 'app', OTHER_CORE, writeAppConfig(folder, appPort, file)), appPort);
    return {
      folder,
      appPort,
      users,
      transfer: { file, bytes: TRANSFER_BYTES },
      requests: writeAllRequests(folder, users),
      close: () => group.close(),
    };
  });
}

/** The users file of a rival. */
export function writeUsersFiles({ folder, users }: BasicEnvironment): Record<'steady' | 'storm' | 'mixed', string> {
  return {
    steady: writeUsers(folder, 'steady.users', users.steady),
    storm: writeUsers(folder, 'storm.users', users.storm),
    mixed: writeUsers(folder, 'mixed.users', users.mixed),
  };
}

function writeAllRequests(folder: string, users: Users): BasicEnvironment['requests'] {
  const { name } = users.storm[0];
  const guesses = Array.from({ length: GUESSES }, () => toAuthorization({ name, password: makePassword() }));
  const fromMany = guesses.map((guess, i) => [guess, `X-Forwarded-For: ${MANY_ADDRESSES}.${i >> 8}.${i & 255}`]);
  const fromOne = guesses.map((guess) => [guess, `X-Forwarded-For: ${ONE_ADDRESS}`]);
  return {
    known: writeRequests(
      folder,
      'known.requests',
      users.steady.map((user) => [toAuthorization(user)]),
    ),
    nobody: writeRequests(folder, 'nobody.requests', [[]]),
    guessesOfOne: writeRequests(folder, 'guesses-of-one.requests', fromOne),
    guessesOfMany: writeRequests(folder, 'guesses-of-many.requests', fromMany),
  };
}

/** An app with minimal cost: it responds with a line of JSON, sends a file, or reads a body and then responds. */
function writeAppConfig(folder: string, port: number, transfer: string): string {
  const file = join(folder, 'app.conf');
  const config = `${toNginxHead(folder, 'app', ['ndk_http_module.so', 'ngx_http_lua_module.so'])}
http {
  ${toNginxSpools(folder, 'app')}
  access_log off;
  client_max_body_size 0;
  keepalive_requests 100000000;
  keepalive_timeout 300s;
  sendfile on;
  server {
    listen 127.0.0.1:${port};
    location / { default_type application/json; return 200 '${APP_ANSWER}'; }
    location ~ /download$ { default_type application/octet-stream; alias ${transfer}; }
    location ~ /upload$ {
      default_type application/json;
      content_by_lua_block {
        local content, left = ngx.req.socket(), tonumber(ngx.var.content_length)
        while left > 0 do
          local part, problem = content:receiveany(262144)
          if not part then return ngx.exit(400) end
          left = left - #part
        end
        ngx.print '${APP_ANSWER}'
      }
    }
  }
}
`;
  writeFileSync(file, config);
  return file;
}
