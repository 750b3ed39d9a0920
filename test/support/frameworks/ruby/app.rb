# Serves the routes of ../framework.ts with Sinatra on Puma.
require 'json'
require 'sinatra/base'
require 'puma'
require 'puma/server'

class App < Sinatra::Base
  set :protection, false
  set :show_exceptions, false

  helpers do
    def answer(handler)
      content_type :json
      JSON.generate(handler: handler, path: request.path_info.dup.force_encoding('UTF-8').scrub, method: request.request_method, host: request.env['HTTP_HOST'].to_s)
    end
  end

  def self.every(path, handler)
    %i[get post put patch delete options link unlink].each { |verb| send(verb, path) { answer(handler) } }
  end

  every '/admin', 'admin'
  every '/admin/*', 'admin'
  every '/hooks/billing', 'billing'
  every '/account', 'account'
  every(/.*/, 'open')
end

server = Puma::Server.new(App)
port = server.add_tcp_listener('127.0.0.1', 0).addr[1]
server.run
puts "listening #{port} #{Sinatra::VERSION}"
$stdout.flush
sleep
