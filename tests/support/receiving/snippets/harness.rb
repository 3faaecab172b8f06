require "json"

$works = 0

def work(body)
  $works += 1
end

STDIN.each_line do |line|
  request = JSON.parse(line)
  env = request["headers"].to_h { |name, value| ["HTTP_" + name.upcase.tr("-", "_"), value] }
  puts "#{receive(env, request["body"].unpack1("m"))} #{$works}"
end
