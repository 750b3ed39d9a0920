/** The configs of the rivals of the HTTP Basic benchmark: the same paths, users and app, an access log, and defaults otherwise. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { toNginxHead, toNginxSpools } from '../bench-environment.ts';
import { type BasicEnvironment, writeUsersFiles } from './basic-environment.ts';
import type { User } from './users.ts';

/** Algorithms of crypt(3) on Debian, which nginx uses. */
const NGINX_KNOWS = /^\$(?:2y|6|apr1)\$/;

/** The folder and the role of a sidegate process. */
export interface SidegateOptions {
  readonly name: string;
  readonly port: number;
  readonly adminPort: number;
  readonly isProxied: boolean;
}

/** As a user would write it; everything else is sidegate's default. */
export function writeSidegateConfig(
  environment: BasicEnvironment,
  { name, port, adminPort, isProxied }: SidegateOptions,
): string {
  const { steady, storm, mixed } = writeUsersFiles(environment);
  const file = join(environment.folder, `${name}.yaml`);
  const route = (path: string, rest: string): string => `  - name: ${path}
    match: { pathPrefix: /${path} }
    upstream: http://127.0.0.1:${environment.appPort}
    ${rest}
`;
  const basic = (path: string, users: string, more = ''): string =>
    route(path, `basic: { realm: ${path}, users: { file: ${users} }, requireTls: false${more} }`);
  const config = `listen:
  address: 127.0.0.1:${port}${isProxied ? '\n  trustedProxies: [127.0.0.1]' : ''}
admin:
  address: 127.0.0.1:${adminPort}
shutdown: { grace: 0s }
routes:
${route('open', 'allow: anyone')}${basic('steady', steady)}${basic('limited', storm)}${basic('unlimited', storm, ', limit: off')}${basic('mixed', mixed, ', limit: off')}`;
  writeFileSync(file, config);
  return file;
}

/** One worker, because each rival has one core; no limit for bodies. */
export function writeNginxConfig(environment: BasicEnvironment, port: number): string {
  const { folder, appPort, users } = environment;
  const files = writeUsersFiles(environment);
  const [first] = users.steady as readonly [User, ...User[]];
  // bcrypt alone would cost more than the transfer of the body.
  const plain = join(folder, 'plain.users');
  writeFileSync(plain, `${first.name}:{PLAIN}${first.password}\n`);
  const known = join(folder, 'nginx-mixed.users');
  const entries = users.mixed.filter(({ hash }) => NGINX_KNOWS.test(hash));
  writeFileSync(known, entries.map(({ name, hash }) => `${name}:${hash}\n`).join(''));
  const guarded = (path: string, file: string, more = ''): string =>
    `    location /${path}/ { auth_basic ${path}; auth_basic_user_file ${file}; proxy_pass http://app; ${more}}`;
  const file = join(folder, 'nginx.conf');
  const config = `${toNginxHead(folder, 'nginx')}
http {
  ${toNginxSpools(folder, 'nginx')}
  log_format line escape=json '{"time":"$time_iso8601","requestId":"$request_id","method":"$request_method","user":"$remote_user",'
    '"status":$status,"client":"$remote_addr","duration":$request_time,"upstream":"$upstream_response_time","bytesIn":"$request_length"}';
  access_log ${join(folder, 'nginx.log')} line buffer=64k flush=1s;
  client_max_body_size 0;
  keepalive_requests 100000000;
  keepalive_timeout 65s;
  upstream app {
    server 127.0.0.1:${appPort};
    keepalive 256;
    keepalive_requests 100000000;
  }
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_set_header Host $http_host;
  proxy_set_header Authorization "";
  proxy_set_header X-Forwarded-For $remote_addr;
  proxy_set_header X-Forwarded-Proto $scheme;
  proxy_set_header X-Forwarded-Host $http_host;
  proxy_set_header X-Forwarded-User $remote_user;
  server {
    listen 127.0.0.1:${port};
${guarded('steady', files.steady)}
${guarded('unlimited', files.storm)}
${guarded('mixed', known)}
${guarded('buffered', plain)}
${guarded('unbuffered', plain, 'proxy_buffering off; proxy_request_buffering off; ')}
  }
}
`;
  writeFileSync(file, config);
  return file;
}

/** A site with an access log and one without; the hash cache is enabled, as always in a Caddyfile. */
export function writeCaddyConfig({ folder, appPort, users }: BasicEnvironment, port: number, quietPort: number): string {
  const guarded = (path: string, some: readonly User[]): string => `
  handle /${path}/* {
    basic_auth bcrypt ${path} {
${some.map(({ name, hash }) => `      ${name} ${hash}`).join('\n')}
    }
    reverse_proxy 127.0.0.1:${appPort} {
      header_up -Authorization
      header_up X-Forwarded-User {http.auth.user.id}
    }
  }`;
  const mixed = users.mixed.filter(({ hash }) => hash.startsWith('$2y$'));
  const site = (at: number, log: string): string => `http://:${at} {
  bind 127.0.0.1
  ${log}${guarded('steady', users.steady)}${guarded('unlimited', users.storm)}${guarded('mixed', mixed)}
}
`;
  const file = join(folder, 'Caddyfile');
  const log = `log {
    output file ${join(folder, 'caddy-access.log')}
  }`;
  writeFileSync(
    file,
    `{
  admin off
  persist_config off
  auto_https off
}
${site(port, log)}${site(quietPort, '')}`,
  );
  return file;
}
