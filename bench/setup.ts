/** Checks that the external tools of the benchmark are installed, and names the missing Debian packages. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { installImageNode } from '../scripts/image-node.ts';

/** The programs and files that a benchmark needs. */
export interface Tools {
  /** Command → Debian and Ubuntu package. */
  readonly programs: Readonly<Record<string, string>>;
  readonly luaModule: boolean;
  /** The Redis client for nginx's Lua. */
  readonly luaRedis: boolean;
}

/** Requirements of the webhook benchmark. */
export const WEBHOOK_TOOLS: Tools = {
  programs: { nginx: 'nginx-light', 'redis-server': 'redis-server', wrk: 'wrk', taskset: 'util-linux' },
  luaModule: true,
  luaRedis: true,
};
/** Requirements of the HTTP Basic benchmark. */
export const BASIC_TOOLS: Tools = {
  programs: { nginx: 'nginx-light', wrk: 'wrk', curl: 'curl', openssl: 'openssl', taskset: 'util-linux' },
  luaModule: true,
  luaRedis: false,
};
const ROOT = join(import.meta.dirname, '..');
const LUA_MODULE = 'ngx_http_lua_module.so';
const LUA_REDIS = '/usr/share/lua/5.1/nginx/redis.lua';

/** Throws an error with the fix if the tools or the bundle are missing. */
export function checkSetUp(tools: Tools): void {
  const missing = findMissingPackages(tools);
  if (missing.length > 0) throw new Error(`install first: apt-get install ${missing.join(' ')}`);
  if (!existsSync(join(ROOT, 'dist', 'sidegate.cjs'))) throw new Error('build first: npm run build');
}

/** Returns the missing packages; none if the benchmark can run. */
function findMissingPackages({ programs, luaModule, luaRedis }: Tools): string[] {
  const missing = Object.entries(programs).filter(([program]) => !isInPath(program));
  const packages = missing.map(([, name]) => name);
  if (luaModule && (packages.includes('nginx-light') || !existsSync(join(nginxModulesFolder(), LUA_MODULE)))) {
    packages.push('libnginx-mod-http-lua');
  }
  if (luaRedis && !existsSync(LUA_REDIS)) packages.push('lua-nginx-redis');
  return packages;
}

/** Returns the compiled-in module path of nginx. */
export function nginxModulesFolder(): string {
  return /--modules-path=(\S+)/.exec(describeNginx())?.[1] ?? '';
}

/** Returns the versions of the tools, for the report. */
export function describeTools(): string[] {
  const redis = /v=(\S+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' }))?.[1];
  return [`Node ${readVersion(installImageNode())}`, `nginx ${readNginxVersion()} with LuaJIT`, `Redis ${redis}`];
}

/** Returns the version of Debian's nginx. */
export function readNginxVersion(): string {
  return /nginx\/(\S+)/.exec(describeNginx())?.[1] ?? '';
}

/** Returns a program's output for `--version`. */
export function readVersion(binary: string): string {
  return execFileSync(binary, ['--version'], { encoding: 'utf8' }).trim();
}

/** `nginx -V` writes to standard error. */
function describeNginx(): string {
  return execFileSync('sh', ['-c', 'nginx -V 2>&1'], { encoding: 'utf8' });
}

function isInPath(program: string): boolean {
  return (process.env['PATH'] ?? '').split(':').some((folder) => existsSync(join(folder, program)));
}

if (import.meta.main) {
  checkSetUp(WEBHOOK_TOOLS);
  console.log('everything is here');
}
