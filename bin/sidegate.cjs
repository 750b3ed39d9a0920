#!/usr/bin/env node
// The launcher, in ECMAScript 5 so that every Node can read it: it starts the bundle, or says that this Node is too old. In a checkout of
// the repository it starts the sources, on the Node of devDependencies where this one is too old for them.
'use strict';
var fs = require('fs');
var path = require('path');

var OLDEST = [22, 15];
var OLDEST_FOR_SOURCES = [24, 0];
var root = path.join(__dirname, '..');
var source = path.join(root, 'src', 'cli', 'main.ts');
var isCheckout = fs.existsSync(source);

if (isOlderThan(isCheckout ? OLDEST_FOR_SOURCES : OLDEST)) {
  var node = isCheckout ? path.join(root, 'node_modules', 'node', 'bin', 'node') : '';
  if (isCheckout && fs.existsSync(node)) startOn(node);
  else refuse();
} else {
  require(isCheckout ? source : path.join(root, 'dist', 'sidegate.cjs'));
}

function isOlderThan(version) {
  var parts = process.versions.node.split('.');
  var major = Number(parts[0]);
  return major < version[0] || (major === version[0] && Number(parts[1]) < version[1]);
}

function refuse() {
  var needed = (isCheckout ? OLDEST_FOR_SOURCES : OLDEST).join('.');
  var advice = isCheckout ? 'run npm ci, which installs one' : 'install one from https://nodejs.org, or run the container image';
  console.error('sidegate needs Node ' + needed + ' or newer, and this is Node ' + process.versions.node + ': ' + advice + '.');
  process.exit(1);
}

function startOn(program) {
  var signals = require('os').constants.signals;
  var child = require('child_process').spawn(program, [source].concat(process.argv.slice(2)), { stdio: 'inherit' });
  ['SIGTERM', 'SIGINT', 'SIGHUP'].forEach(function (signal) {
    process.on(signal, function () {
      child.kill(signal);
    });
  });
  child.on('exit', function (code, signal) {
    process.exit(code === null ? 128 + (signals[signal] || 0) : code);
  });
}
