/** Checks that the external tools of the benchmark are installed, and names the missing Debian packages. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { installImageNode } from '../test/prepare/image-node.ts';

/** Command → Debian and Ubuntu package. */
const PROGRAMS = { nginx: 'nginx-light', 'redis-server': 'redis-server', wrk: 'wrk', taskset: 'util-linux' };
const ROOT = join(import.meta.dirname, '..');
const LUA_MODULE = 'ngx_http_lua_module.so';
/** The Redis client for nginx's Lua. */
const LUA_REDIS = '/usr/share/lua/5.1/nginx/redis.lua';

/** Throws an error with the fix if the tools of the webhook benchmark or the bundle are missing. */
export function checkSetUp(): void {
  const missing = findMissingPackages();
  if (missing.length > 0) throw new Error(`install first: apt-get install ${missing.join(' ')}`);
  if (!existsSync(join(ROOT, 'dist', 'sidegate.cjs'))) throw new Error('build first: npm run build');
}

/** Returns the missing packages; none if the benchmark can run. */
function findMissingPackages(): string[] {
  const missing = Object.entries(PROGRAMS).filter(([program]) => !isInPath(program));
  const packages = missing.map(([, name]) => name);
  if (packages.includes('nginx-light') || !existsSync(join(nginxModulesFolder(), LUA_MODULE)))
    packages.push('libnginx-mod-http-lua');
  if (!existsSync(LUA_REDIS)) packages.push('lua-nginx-redis');
  return packages;
}

/** Returns the compiled-in module path of nginx. */
export function nginxModulesFolder(): string {
  return /--modules-path=(\S+)/.exec(describeNginx())?.[1] ?? '';
}

/** Returns the versions of the tools, for the report. */
export function describeTools(): string[] {
  const redis = /v=(\S+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' }))?.[1];
  return [
    `Node ${execFileSync(installImageNode(), ['--version'], { encoding: 'utf8' }).trim()}`,
    `nginx ${/nginx\/(\S+)/.exec(describeNginx())?.[1]} with LuaJIT`,
    `Redis ${redis}`,
  ];
}

/** `nginx -V` writes to standard error. */
function describeNginx(): string {
  return execFileSync('sh', ['-c', 'nginx -V 2>&1'], { encoding: 'utf8' });
}

function isInPath(program: string): boolean {
  return (process.env['PATH'] ?? '').split(':').some((folder) => existsSync(join(folder, program)));
}
