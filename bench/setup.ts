/** Checks that the benchmark's outside tools are here and names the Debian packages that bring them. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const PROGRAMS: Readonly<Record<string, string>> = {
  nginx: 'nginx-light',
  'redis-server': 'redis-server',
  wrk: 'wrk',
  taskset: 'util-linux',
};
const LUA_MODULE = 'ngx_http_lua_module.so';
const LUA_REDIS = '/usr/share/lua/5.1/nginx/redis.lua';

/** The packages that are missing; empty when the benchmark can run. */
export function findMissingPackages(): string[] {
  const missing = Object.entries(PROGRAMS).filter(([program]) => !isInPath(program));
  const packages = missing.map(([, name]) => name);
  if (packages.includes('nginx-light') || !existsSync(join(nginxModulesFolder(), LUA_MODULE))) {
    packages.push('libnginx-mod-http-lua');
  }
  if (!existsSync(LUA_REDIS)) packages.push('lua-nginx-redis');
  return packages;
}

/** Where this nginx was built to find its modules. */
export function nginxModulesFolder(): string {
  return /--modules-path=(\S+)/.exec(describeNginx())?.[1] ?? '';
}

/** Version numbers of the tools, for the report. */
export function describeTools(): string[] {
  const nginx = /nginx\/(\S+)/.exec(describeNginx())?.[1];
  const redis = /v=(\S+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' }))?.[1];
  return [`nginx ${nginx} with LuaJIT`, `Redis ${redis}`];
}

/** `nginx -V` writes to standard error. */
function describeNginx(): string {
  return execFileSync('sh', ['-c', 'nginx -V 2>&1'], { encoding: 'utf8' });
}

function isInPath(program: string): boolean {
  return (process.env['PATH'] ?? '').split(':').some((folder) => existsSync(join(folder, program)));
}

if (import.meta.main) {
  const missing = findMissingPackages();
  console.log(missing.length === 0 ? 'everything is here' : `missing: apt-get install ${missing.join(' ')}`);
  process.exitCode = missing.length === 0 ? 0 : 1;
}
